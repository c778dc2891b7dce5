//! What [`crate::store`] promises, as cases that run against any implementation.
//!
//! [`run_all`] takes a way to make an empty bucket and runs every case on one of its own; a failure names the case.
//! Cases are deliberately blind to what the contract leaves open, such as whether superseded generations stay
//! readable.

mod folders;
mod lists;
mod mutations;
mod reads;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};

use crate::object::Attributes;
use crate::store::{Preconditions, Read, ReadRequest, WriteRequest};
use crate::{Kind, Object, ObjectName, Result, Store};

/// One promise.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What is promised.
    pub name: &'static str,
    run: fn(Bucket) -> BoxFuture<'static, ()>,
}

impl Case {
    /// Runs the case on an empty bucket.
    ///
    /// # Panics
    /// Where the promise does not hold.
    pub async fn run(&self, store: Arc<dyn Store>) {
        (self.run)(Bucket(store)).await;
    }
}

macro_rules! cases {
    ($(#[$doc:meta])* $cases:ident: $($module:ident: $($case:ident),+;)+) => {
        $(#[$doc])*
        #[must_use]
        pub fn $cases() -> Vec<Case> {
            vec![$($(Case {
                name: stringify!($case),
                run: |bucket| $module::$case(bucket).boxed(),
            }),+),+]
        }
    };
}

cases! {
    /// Every promise of a bucket with whatever namespace, in the order of the trait's methods.
    cases:
    reads:
        bucket_is_there,
        layout_agrees_with_the_bucket,
        permissions_are_those_that_were_asked_for,
        permissions_of_nothing_are_invalid,
        stat_tells_what_was_written,
        stat_of_nothing_is_not_found,
        read_whole_object,
        read_ranges_are_clipped,
        read_behind_the_end_is_out_of_range,
        read_of_an_empty_object,
        read_of_nothing_is_not_found,
        read_of_another_generation_is_not_found,
        read_honours_preconditions,
        read_keeps_its_generation_while_the_object_changes,
        gzip_is_read_as_stored,
        odd_names_are_ordinary;
    lists:
        list_is_in_byte_order,
        list_folds_at_the_delimiter,
        list_takes_any_delimiter,
        list_shows_the_trailing_delimiter_on_request,
        list_pages_join_without_gap_or_repeat,
        list_begins_at_the_offset,
        list_of_nothing_is_empty,
        list_refuses_a_strange_token;
    writes:
        write_replaces_in_one_step,
        write_keeps_attributes,
        write_where_absent,
        write_over_a_generation,
        write_over_a_metageneration,
        generations_grow,
        upload_is_invisible_until_finished,
        upload_of_nothing_is_an_empty_object,
        upload_of_many_pieces,
        upload_checks_preconditions_twice,
        upload_that_is_dropped_leaves_nothing,
        upload_that_is_canceled_is_over;
    mutations:
        patch_counts_metageneration_only,
        patch_honours_preconditions,
        delete_removes,
        delete_honours_preconditions,
        compose_joins_in_order,
        compose_onto_a_source_appends,
        compose_honours_preconditions,
        compose_takes_1_to_32_sources,
        compose_deletes_its_sources_on_request,
        compose_that_fails_deletes_nothing,
        copy_carries_everything,
        copy_honours_preconditions,
        rename_moves_in_one_step,
        rename_honours_preconditions;
}

cases! {
    /// Every further promise of a bucket with a hierarchical namespace.
    folder_cases:
    folders:
        layout_says_hierarchical,
        folder_is_created_once,
        folder_needs_its_parent,
        objects_make_their_folders,
        folders_are_listed_in_order,
        folder_is_deleted_when_empty,
        folder_moves_with_everything,
        folder_rename_refuses;
}

/// Far above what any case takes, so that a hang ends with its name.
const CASE_LIMIT: Duration = Duration::from_secs(60);

/// Runs [`cases`], each on a fresh bucket.
///
/// # Panics
/// After all cases ran, where some failed, with their names.
pub async fn run_all<F, B>(make: F)
where
    F: Fn() -> B,
    B: Future<Output = Arc<dyn Store>>,
{
    run(cases(), make).await;
}

/// Runs [`folder_cases`], each on a fresh bucket with a hierarchical namespace.
///
/// # Panics
/// After all cases ran, where some failed, with their names.
pub async fn run_folders<F, B>(make: F)
where
    F: Fn() -> B,
    B: Future<Output = Arc<dyn Store>>,
{
    run(folder_cases(), make).await;
}

async fn run<F, B>(cases: Vec<Case>, make: F)
where
    F: Fn() -> B,
    B: Future<Output = Arc<dyn Store>>,
{
    let mut failed = Vec::new();
    for case in cases {
        let store = make().await;
        let task = tokio::spawn(async move {
            tokio::time::timeout(CASE_LIMIT, case.run(store))
                .await
                .unwrap_or_else(|_| panic!("{} does not end", case.name));
        });
        if task.await.is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "broken promises: {failed:?}");
}

/// The bucket under test, with the short words that the cases use.
#[derive(Clone)]
struct Bucket(Arc<dyn Store>);

impl std::ops::Deref for Bucket {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Bucket {
    async fn put(&self, object: &str, body: impl Into<Bytes>) -> Object {
        let request = to(object, Preconditions::default());
        self.write(&request, body.into()).await.unwrap()
    }

    async fn get(&self, object: &str) -> Result<Bytes> {
        let read = self.read(&whole(object)).await?;
        collect(read).await
    }
}

fn name(object: &str) -> ObjectName {
    ObjectName::parse(object).unwrap()
}

fn to(object: &str, preconditions: Preconditions) -> WriteRequest {
    WriteRequest {
        name: name(object),
        attributes: Attributes::default(),
        preconditions,
    }
}

fn whole(object: &str) -> ReadRequest {
    ReadRequest {
        name: name(object),
        generation: None,
        range: None,
        preconditions: Preconditions::default(),
    }
}

/// All bytes, checked against what the answer announced.
async fn collect(mut read: Read) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = read.body.next().await {
        let piece = piece?;
        assert!(!piece.is_empty(), "a piece of a body is never empty");
        bytes.extend_from_slice(&piece);
    }
    let announced = read.range.end - read.range.start;
    assert_eq!(
        bytes.len() as u64,
        announced,
        "a body is as long as its range"
    );
    Ok(bytes.freeze())
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind
}

/// Bytes in which no two windows are alike.
fn pattern(length: u32) -> Bytes {
    (0..length.div_ceil(4))
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes())
        .take(length as usize)
        .collect()
}
