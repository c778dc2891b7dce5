//! Calls about folders: resources of a bucket with a hierarchical namespace.
//!
//! The service answers 409 to whatever is in a folder's way: another folder, a parent that is missing, something inside,
//! or a bucket without a hierarchical namespace. Which of them it was follows from the call, or from a look.

use std::time::Duration;

use http::Method;
use tokio::time::{Instant, sleep};

use super::call::{Call, Failed};
use super::client::Client;
use super::operation::Operation;
use super::resource::{
    NewFolder, Outcome, Progress, parse_folder, parse_folders, parse_layout, parse_operation,
};
use crate::object::{Folder, Layout};
use crate::store::{FolderListRequest, FolderPage, FolderRename, Preconditions};
use crate::{Error, FolderName, Kind, Metageneration, Result};

/// The longest page of folders: a thousand with the longest names.
const PAGE: usize = 8 << 20;

/// How long to wait before asking after a rename; each time twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(2);

impl Client {
    pub(super) async fn layout(&self) -> Result<Layout> {
        let bucket = self.bucket.as_str();
        let call = Call::new(Operation::Layout, bucket, Method::GET, self.urls.layout())?;
        let answer = self.run(&call).await?;
        parse_layout(answer.bytes()).map_err(|part| call.malformed(part))
    }

    pub(super) async fn folder(&self, name: &FolderName) -> Result<Folder> {
        self.look(name).await.map(|(folder, _)| folder)
    }

    /// A folder, and the rename that it is in the middle of.
    async fn look(&self, name: &FolderName) -> Result<(Folder, Option<String>)> {
        let url = self.urls.folder(name);
        let call = Call::new(Operation::FolderGet, name.as_str(), Method::GET, url)?;
        let answer = self.run(&call).await.map_err(|failed| flat(failed.error))?;
        parse_folder(answer.bytes()).map_err(|part| call.malformed(part))
    }

    pub(super) async fn list_folders(&self, request: &FolderListRequest) -> Result<FolderPage> {
        let mut url = self.urls.folders();
        if !request.prefix.is_empty() {
            url = url.query("prefix", &request.prefix);
        }
        if request.children_only {
            url = url.query("delimiter", "/");
        }
        if let Some(token) = &request.page_token {
            url = url.query("pageToken", token);
        }
        let url = url.number("pageSize", request.max_results);
        let bucket = self.bucket.as_str();
        let mut call = Call::new(Operation::FolderList, bucket, Method::GET, url)?;
        call.collect = Some(PAGE);
        let answer = self.run(&call).await.map_err(|failed| flat(failed.error))?;
        parse_folders(answer.bytes()).map_err(|part| call.malformed(part))
    }

    pub(super) async fn create_folder(&self, name: &FolderName, recursive: bool) -> Result<Folder> {
        let mut url = self.urls.folders();
        if recursive {
            url = url.query("recursive", "true");
        }
        let call = Call::new(Operation::FolderInsert, name.as_str(), Method::POST, url)?
            .json(&NewFolder::new(name));
        let failed = match self.run(&call).await {
            Ok(answer) => {
                let parsed = parse_folder(answer.bytes());
                return parsed
                    .map(|(folder, _)| folder)
                    .map_err(|part| call.malformed(part));
            }
            Err(failed) => failed,
        };
        match (failed.error.kind, failed.may_have_acted) {
            // Its own echo, or somebody else's folder that is like it in everything.
            (Kind::Exists, true) => self.folder(name).await,
            (Kind::Exists, false) => Err(self.in_the_way(failed.error, name).await),
            (Kind::Unavailable, true) if !failed.in_vain => match self.folder(name).await {
                Ok(folder) => Ok(folder),
                Err(_) => Err(failed.error),
            },
            _ => Err(failed.error),
        }
    }

    /// What a 409 to the making of `name` says: it is there, it has nowhere to be, or the bucket has no folders.
    async fn in_the_way(&self, conflict: Error, name: &FolderName) -> Error {
        match self.look(name).await {
            Err(look) if look.kind == Kind::NotFound => Error {
                kind: Kind::NotFound,
                ..conflict
            },
            Err(look) if look.kind == Kind::Unsupported => Error {
                kind: Kind::Unsupported,
                ..conflict
            },
            Ok(_) | Err(_) => conflict,
        }
    }

    pub(super) async fn delete_folder(
        &self,
        name: &FolderName,
        metageneration: Option<Metageneration>,
    ) -> Result<()> {
        let preconditions = Preconditions {
            metageneration,
            ..Preconditions::default()
        };
        let url = self.urls.folder(name).conditions(&preconditions);
        let call = Call::new(Operation::FolderDelete, name.as_str(), Method::DELETE, url)?
            .under(&preconditions);
        let Err(failed) = self.run(&call).await else {
            return Ok(());
        };
        match (failed.error.kind, failed.may_have_acted) {
            (Kind::NotFound, true) => Ok(()),
            (Kind::Unavailable, true) if !failed.in_vain => match self.look(name).await {
                Err(look) if look.kind == Kind::NotFound => Ok(()),
                Ok(_) | Err(_) => Err(failed.error),
            },
            (Kind::Exists, _) => Err(self.still_holds(failed.error, name).await),
            _ => Err(failed.error),
        }
    }

    /// What a 409 to the removal of `name` says: something is in it, or the bucket has no folders.
    async fn still_holds(&self, conflict: Error, name: &FolderName) -> Error {
        let kind = match self.look(name).await {
            Err(look) if look.kind == Kind::Unsupported => Kind::Unsupported,
            Ok(_) | Err(_) => Kind::NotEmpty,
        };
        Error { kind, ..conflict }
    }

    pub(super) async fn rename_folder(&self, request: &FolderRename) -> Result<Folder> {
        let source = Preconditions {
            metageneration: request.source_metageneration,
            ..Preconditions::default()
        };
        let url = self
            .urls
            .rename_folder(&request.source, &request.target)
            .source_conditions(&source);
        let subject = request.source.as_str();
        let call = Call::new(Operation::FolderRename, subject, Method::POST, url)?.from(&source);
        match self.run(&call).await {
            Ok(answer) => {
                let begun = parse_operation(answer.bytes()).map_err(|part| call.malformed(part))?;
                self.follow(request, begun).await
            }
            Err(failed) if failed.may_have_acted => self.resolve_rename(failed, request).await,
            Err(failed) if failed.error.kind == Kind::Exists => {
                Err(self.in_the_way(failed.error, &request.target).await)
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// Waits for the end of a rename, as long as it gets on.
    async fn follow(&self, request: &FolderRename, begun: Progress) -> Result<Folder> {
        let mut progress = begun;
        let mut deadline = Instant::now() + self.timeouts.operation;
        let mut pause = FIRST_LOOK;
        loop {
            match progress.outcome {
                Some(Outcome::Renamed(Some(folder))) => return Ok(folder),
                Some(Outcome::Renamed(None)) => return self.folder(&request.target).await,
                Some(Outcome::Failed(kind, message)) => {
                    return Err(self.rename_error(request, kind, message));
                }
                None if Instant::now() + pause >= deadline => {
                    let message = "the rename goes on, and its outcome is unknown: it does not get any further";
                    return Err(self.rename_error(request, Kind::Unavailable, message));
                }
                None => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
            let next = self.progress(request, &progress.id).await?;
            if next.percent != progress.percent {
                deadline = Instant::now() + self.timeouts.operation;
            }
            progress = next;
        }
    }

    async fn progress(&self, request: &FolderRename, id: &str) -> Result<Progress> {
        let url = self.urls.operation(id);
        let subject = request.source.as_str();
        let call = Call::new(Operation::Progress, subject, Method::GET, url)?;
        let answer = self.run(&call).await?;
        parse_operation(answer.bytes()).map_err(|part| call.malformed(part))
    }

    /// What became of a rename whose answer was lost: it is under way, or the source is gone and the target there. A
    /// target must not be there before, so that nobody else's folder can be taken for it.
    async fn resolve_rename(&self, failed: Failed, request: &FolderRename) -> Result<Folder> {
        if failed.in_vain {
            return Err(unknown(failed.error));
        }
        match self.look(&request.source).await {
            Ok((_, Some(id))) => {
                let begun = self.progress(request, &id).await?;
                return self.follow(request, begun).await;
            }
            Ok((_, None)) => return Err(failed.error),
            Err(look) if look.kind == Kind::NotFound => {}
            Err(_) => return Err(unknown(failed.error)),
        }
        match self.look(&request.target).await {
            Ok((folder, _)) => Ok(folder),
            Err(look) if look.kind == Kind::NotFound => Err(failed.error),
            Err(_) => Err(unknown(failed.error)),
        }
    }

    fn rename_error(
        &self,
        request: &FolderRename,
        kind: Kind,
        message: impl Into<String>,
    ) -> Error {
        Error::new(
            kind,
            Operation::FolderRename.name(),
            &request.source,
            message,
        )
    }
}

/// Nothing can be in the way of a look but that the bucket has no folders.
fn flat(error: Error) -> Error {
    match error.kind {
        Kind::Exists => Error {
            kind: Kind::Unsupported,
            ..error
        },
        _ => error,
    }
}

fn unknown(error: Error) -> Error {
    Error {
        kind: Kind::Unavailable,
        message: format!("the outcome is unknown: {}", error.message),
        ..error
    }
}
