use std::ffi::OsStr;

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::testing::Method;

use super::super::*;
use super::attributes::foreign;
use super::kit::{Bench, WRITE, bench};
use crate::metadata::Posix;

impl Bench {
    async fn get(&self, ino: Ino, name: &str) -> Result<String, Errno> {
        let got = self.fs.getxattr(ino, OsStr::new(name)).await;
        let got = got.map_err(|error| error.errno())?;
        Ok(String::from_utf8(got).unwrap())
    }

    async fn set(&self, ino: Ino, name: &str, value: &str) -> Result<(), Errno> {
        let (name, value) = (OsStr::new(name), value.as_bytes());
        let set = self.fs.setxattr(ino, name, value, SetXattr::Any).await;
        set.map_err(|error| error.errno())
    }
}

#[tokio::test]
async fn what_is_set_on_a_published_file_is_one_patch_and_is_seen_everywhere() {
    let bench = bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    bench.store.reset_calls();
    bench.set(ino, "user.k", "v").await.unwrap();
    bench
        .set(ino, "user.gcs.content-type", "text/html")
        .await
        .unwrap();
    assert_eq!(bench.get(ino, "user.k").await.as_deref(), Ok("v"));
    assert_eq!(bench.store.calls().of(Method::Patch), 2);
    assert_eq!(bench.store.calls().total(), 2);
    let object = bench.store.object("f").unwrap();
    assert_eq!(object.attributes.content_type.as_deref(), Some("text/html"));
    let other = super::kit::bench_over(&bench.faults, |_| {});
    let ino = other.ino("f").await;
    assert_eq!(other.get(ino, "user.k").await.as_deref(), Ok("v"));
    assert_eq!(other.fs.listxattr(ino).await.unwrap(), b"user.k\0");
    let generation = object.generation.to_string();
    assert_eq!(other.get(ino, "user.gcs.generation").await, Ok(generation));
    let name = OsStr::new("user.k");
    other.fs.removexattr(ino, name).await.unwrap();
    assert_eq!(other.get(ino, "user.k").await, Err(Errno::ENODATA));
    let again = other.fs.removexattr(ino, name).await;
    assert_eq!(again.unwrap_err().errno(), Errno::ENODATA);
}

#[tokio::test]
async fn on_unpublished_content_it_rides_with_the_publication() {
    let bench = bench();
    let (ino, fh) = bench.create("f").await;
    bench.write(fh, "x").await;
    bench.set(ino, "user.k", "v").await.unwrap();
    bench
        .set(ino, "user.gcs.content-type", "text/html")
        .await
        .unwrap();
    bench
        .set(ino, "user.gcs.cache-control", "no-store")
        .await
        .unwrap();
    assert_eq!(bench.get(ino, "user.k").await.as_deref(), Ok("v"));
    // The content is none of the bucket's.
    assert_eq!(
        bench.get(ino, "user.gcs.generation").await,
        Err(Errno::ENODATA)
    );
    bench.fs.flush(fh).await.unwrap();
    assert_eq!(bench.store.calls().total(), 1);
    let attributes = bench.store.object("f").unwrap().attributes;
    assert_eq!(attributes.metadata["gcsmount-xattr-k"], "v");
    assert_eq!(attributes.content_type.as_deref(), Some("text/html"));
    assert_eq!(attributes.cache_control.as_deref(), Some("no-store"));
    assert!(bench.get(ino, "user.gcs.generation").await.is_ok());
    bench.fs.release(fh).await;
}

#[tokio::test]
async fn writes_and_the_kernels_own_questions_make_no_call() {
    let bench = bench();
    let (ino, fh) = bench.create("f").await;
    for _ in 0..1000 {
        let name = OsStr::new("security.capability");
        let answer = bench.fs.try_getxattr(ino, name).unwrap();
        assert_eq!(answer.unwrap_err().errno(), Errno::ENOTSUP);
        bench.fs.try_write(fh, 0, b"x", false).unwrap().unwrap();
    }
    assert!(bench.fs.try_listxattr(ino).is_some());
    assert_eq!(bench.store.calls().total(), 0);
    bench.fs.flush(fh).await.unwrap();
    bench.fs.release(fh).await;
    assert!(bench.fs.try_listxattr(ino).is_some());
    assert_eq!(bench.store.calls().total(), 1);
}

#[tokio::test]
async fn create_looks_at_what_others_have_set_meanwhile() {
    let bench = bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    foreign(&bench, "f", "gcsmount-xattr-k", "theirs").await;
    let name = OsStr::new("user.k");
    let set = bench.fs.setxattr(ino, name, b"mine", SetXattr::Create);
    assert_eq!(set.await.unwrap_err().errno(), Errno::EEXIST);
    let object = bench.store.object("f").unwrap();
    assert_eq!(object.attributes.metadata["gcsmount-xattr-k"], "theirs");
}

#[tokio::test]
async fn directories_with_an_object_have_attributes_and_others_have_none() {
    let bench = bench();
    let made = bench
        .fs
        .mkdir(Ino::ROOT, OsStr::new("d"), Posix::default())
        .await;
    let made = made.unwrap().attr.ino;
    bench.set(made, "user.k", "v").await.unwrap();
    assert_eq!(bench.get(made, "user.k").await.as_deref(), Ok("v"));
    bench.store.put("implicit/f", "x");
    let implicit = bench.ino("implicit").await;
    assert_eq!(
        bench.set(implicit, "user.k", "v").await,
        Err(Errno::ENOTSUP)
    );
    bench.store.reset_calls();
    for _ in 0..9 {
        assert_eq!(bench.fs.listxattr(implicit).await.unwrap(), b"");
        assert_eq!(bench.get(implicit, "user.k").await, Err(Errno::ENODATA));
    }
    assert_eq!(
        bench.store.calls().total(),
        0,
        "that there is none is known"
    );
    assert_eq!(
        bench.set(Ino::ROOT, "user.k", "v").await,
        Err(Errno::ENOTSUP)
    );
}

#[tokio::test]
async fn an_object_that_is_full_of_metadata_can_still_be_written() {
    let bench = bench();
    let attributes = Attributes {
        content_type: Some("a/b".to_owned()),
        ..Attributes::default()
    };
    bench.store.put_with("f", "x", attributes);
    let ino = bench.ino("f").await;
    let value = "v".repeat(3 << 10);
    bench.set(ino, "user.a", &value).await.unwrap();
    bench.set(ino, "user.b", &value).await.unwrap();
    assert_eq!(bench.set(ino, "user.c", &value).await, Err(Errno::ENOSPC));
    let long = "v".repeat(5 << 10);
    assert_eq!(bench.set(ino, "user.c", &long).await, Err(Errno::E2BIG));
    let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
    bench.write(fh, "y").await;
    bench.fs.flush(fh).await.unwrap();
    bench.fs.release(fh).await;
    let metadata = bench.store.object("f").unwrap().attributes.metadata;
    let size: usize = metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    assert!(size <= 8 << 10, "{size}");
    assert_eq!(bench.get(ino, "user.b").await, Ok(value));
}

#[tokio::test]
async fn what_is_only_seen_cannot_be_set() {
    let bench = bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    bench.store.reset_calls();
    for (name, expected) in [
        ("user.gcs.md5", Errno::EPERM),
        ("user.gcs.unknown", Errno::EPERM),
        ("user.gcs.content-type", Errno::EINVAL),
        ("security.capability", Errno::ENOTSUP),
    ] {
        assert_eq!(bench.set(ino, name, "").await, Err(expected), "{name}");
    }
    // The store has no way to patch this one.
    let cached = bench.set(ino, "user.gcs.cache-control", "no-store").await;
    assert_eq!(cached, Err(Errno::ENOTSUP));
    assert_eq!(bench.store.calls().total(), 0);
}
