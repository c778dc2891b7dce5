//! Calls about objects and the bucket that carry no content.

use http::Method;

use super::call::Call;
use super::client::Client;
use super::operation::Operation;
use super::resource::{
    BUCKET_FIELDS, Compose, FIELDS, PatchBody, Rewrite, parse_bucket, parse_list, parse_object,
    parse_permissions, parse_rewrite,
};
use crate::object::Bucket;
use crate::store::{
    ComposeSource, ListPage, ListRequest, Patch, Preconditions, Sources, TransferRequest,
    WriteRequest,
};
use crate::{Error, Kind, Object, ObjectName, Result};

/// The longest page of a list: 1,000 objects with all the metadata that they may have.
const PAGE: usize = 64 << 20;

impl Client {
    pub(super) async fn bucket(&self) -> Result<Bucket> {
        let url = self.urls.bucket().query("fields", BUCKET_FIELDS);
        let name = self.bucket.as_str();
        let call = Call::new(Operation::BucketGet, name, Method::GET, url)?;
        match self.run(&call).await {
            Ok(answer) => parse_bucket(answer.bytes()).map_err(|part| call.malformed(part)),
            Err(failed) if failed.error.kind == Kind::Denied => {
                // The usual roles of an object's reader do not cover the bucket's own metadata.
                let probe = ListRequest {
                    max_results: Some(1),
                    ..ListRequest::default()
                };
                self.list(&probe).await?;
                Ok(Bucket {
                    location: String::new(),
                    storage_class: String::new(),
                    hierarchical: false,
                    uniform_access: None,
                })
            }
            Err(failed) => Err(failed.into()),
        }
    }

    pub(super) async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let url = wanted
            .iter()
            .fold(self.urls.permissions(), |url, permission| {
                url.query("permissions", permission)
            });
        let name = self.bucket.as_str();
        let call = Call::new(Operation::Permissions, name, Method::GET, url)?;
        let answer = self.run(&call).await?;
        let held = parse_permissions(answer.bytes()).map_err(|part| call.malformed(part))?;
        let granted = wanted
            .iter()
            .filter(|wanted| held.iter().any(|held| held == *wanted));
        Ok(granted.map(ToString::to_string).collect())
    }

    pub(super) async fn stat(&self, name: &ObjectName) -> Result<Object> {
        let url = self.urls.object(name);
        let call = Call::new(Operation::Get, name.as_str(), Method::GET, url)?;
        self.object(&call).await
    }

    /// Runs a call that answers with an object.
    async fn object(&self, call: &Call<'_>) -> Result<Object> {
        let answer = self.run(call).await?;
        parse_object(answer.bytes()).map_err(|part| call.malformed(part))
    }

    pub(super) async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let fields = format!("nextPageToken,prefixes,items({FIELDS})");
        let mut url = self.urls.list().query("fields", &fields);
        if !request.prefix.is_empty() {
            url = url.query("prefix", &request.prefix);
        }
        for (key, value) in [
            ("delimiter", &request.delimiter),
            ("pageToken", &request.page_token),
            ("startOffset", &request.start_offset),
        ] {
            if let Some(value) = value {
                url = url.query(key, value);
            }
        }
        if request.include_trailing_delimiter {
            url = url.query("includeTrailingDelimiter", "true");
        }
        let url = url.number("maxResults", request.max_results);
        let subject = self.bucket.as_str();
        let mut call = Call::new(Operation::List, subject, Method::GET, url)?;
        call.collect = Some(PAGE);
        let answer = self.run(&call).await?;
        parse_list(answer.bytes()).map_err(|part| call.malformed(part))
    }

    pub(super) async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        let url = self.urls.object(name).conditions(preconditions);
        let call = Call::new(Operation::Patch, name.as_str(), Method::PATCH, url)?
            .json(&PatchBody::new(patch))
            .under(preconditions);
        match self.run(&call).await {
            Ok(answer) => parse_object(answer.bytes()).map_err(|part| call.malformed(part)),
            Err(failed) => {
                self.resolve_patched(failed, name, patch, preconditions)
                    .await
            }
        }
    }

    pub(super) async fn delete(
        &self,
        name: &ObjectName,
        preconditions: &Preconditions,
    ) -> Result<()> {
        let url = self.urls.object(name).conditions(preconditions);
        let call =
            Call::new(Operation::Delete, name.as_str(), Method::DELETE, url)?.under(preconditions);
        match self.run(&call).await {
            Ok(_) => Ok(()),
            Err(failed) => self.resolve_deleted(failed, name).await,
        }
    }

    pub(super) async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        const OPERATION: Operation = Operation::Compose;
        after.refuse(sources).map_err(|message| {
            Error::new(Kind::Invalid, OPERATION.name(), &request.name, message)
        })?;
        let url = self
            .urls
            .compose(&request.name)
            .conditions(&request.preconditions);
        let mut call = Call::new(OPERATION, request.name.as_str(), Method::POST, url)?
            .json(&Compose::new(&request.attributes, sources, after))
            .under(&request.preconditions);
        call.conditional |= sources.iter().any(|source| source.generation.is_some());
        match self.run(&call).await {
            Ok(answer) => parse_object(answer.bytes()).map_err(|part| call.malformed(part)),
            Err(failed) => self.resolve_composed(failed, request, sources, after).await,
        }
    }

    pub(super) async fn copy(&self, request: &TransferRequest) -> Result<Object> {
        let mut token: Option<String> = None;
        // A call rewrites at least a megabyte, so that the largest object takes fewer than this.
        for _ in 0..1 << 23 {
            let mut url = self
                .urls
                .rewrite(&request.source, &request.target)
                .conditions(&request.target_preconditions)
                .source_conditions(&request.source_preconditions);
            if let Some(token) = &token {
                url = url.query("rewriteToken", token);
            }
            let source = request.source.as_str();
            let call = Call::new(Operation::Rewrite, source, Method::POST, url)?
                .under(&request.target_preconditions)
                .from(&request.source_preconditions);
            let answer = match self.run(&call).await {
                Ok(answer) => answer,
                Err(failed) => return self.resolve_copied(failed, request).await,
            };
            match parse_rewrite(answer.bytes()).map_err(|part| call.malformed(part))? {
                Rewrite::Done(object) => return Ok(*object),
                Rewrite::More(next) => token = Some(next),
            }
        }
        Err(Error::new(
            Kind::Corrupt,
            Operation::Rewrite.name(),
            &request.source,
            "the rewrite does not end",
        ))
    }

    pub(super) async fn rename(&self, request: &TransferRequest) -> Result<Object> {
        let url = self
            .urls
            .rename(&request.source, &request.target)
            .conditions(&request.target_preconditions)
            .source_conditions(&request.source_preconditions);
        let source = request.source.as_str();
        let call = Call::new(Operation::Move, source, Method::POST, url)?
            .under(&request.target_preconditions)
            .from(&request.source_preconditions);
        match self.run(&call).await {
            Ok(answer) => parse_object(answer.bytes()).map_err(|part| call.malformed(part)),
            Err(failed) => self.resolve_renamed(failed, request).await,
        }
    }
}
