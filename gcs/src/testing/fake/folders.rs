//! Folders of a bucket with a hierarchical namespace, as the service keeps them.

use super::State;
use crate::object::Folder;
use crate::store::{FolderListRequest, FolderPage, FolderRename};
use crate::{FolderName, Kind, Metageneration, ObjectName, Result};

const MAX_PAGE: usize = 1000;

impl State {
    /// Makes the folders that an object is in, as its publication does.
    pub(super) fn house(&mut self, object: &ObjectName) {
        if !self.bucket.0.hierarchical {
            return;
        }
        let ends = object.as_str().match_indices('/');
        for (end, _) in ends.collect::<Vec<_>>() {
            if let Ok(name) = FolderName::parse(&object.as_str()[..=end]) {
                self.found(&name);
            }
        }
    }

    /// The folder of this name, new where there was none.
    fn found(&mut self, name: &FolderName) -> Folder {
        if let Some(folder) = self.folders.get(name.as_str()) {
            return folder.clone();
        }
        let now = self.now();
        let folder = Folder {
            name: name.clone(),
            metageneration: Metageneration(1),
            created: now,
            updated: now,
        };
        self.folders.insert(name.clone(), folder.clone());
        folder
    }

    fn supported(&self) -> Result<(), Kind> {
        let hierarchical = self.bucket.0.hierarchical;
        hierarchical.then_some(()).ok_or(Kind::Unsupported)
    }

    pub(super) fn folder(&self, name: &FolderName) -> Result<Folder, Kind> {
        self.supported()?;
        let folder = self.folders.get(name.as_str());
        folder.cloned().ok_or(Kind::NotFound)
    }

    /// Whether a folder may be made here.
    fn vacant(&self, name: &FolderName) -> Result<(), Kind> {
        if self.folders.contains_key(name.as_str()) {
            return Err(Kind::Exists);
        }
        match name.parent() {
            Some(parent) => self.folder(&parent).map(|_| ()),
            None => Ok(()),
        }
    }

    pub(super) fn create_folder(
        &mut self,
        name: &FolderName,
        recursive: bool,
    ) -> Result<Folder, Kind> {
        self.supported()?;
        match self.vacant(name) {
            Err(Kind::NotFound) if recursive => {
                let parent = name.parent().ok_or(Kind::NotFound)?;
                self.create_folder(&parent, true)?;
            }
            vacant => vacant?,
        }
        Ok(self.found(name))
    }

    pub(super) fn list_folders(&self, request: &FolderListRequest) -> Result<FolderPage, Kind> {
        self.supported()?;
        let prefix = &*request.prefix;
        let known = |token: &&str| token.starts_with(prefix);
        let after = match &request.page_token {
            Some(token) => Some(Some(&**token).filter(known).ok_or(Kind::Invalid)?),
            None => None,
        };
        if !(prefix.is_empty() || prefix.ends_with('/')) {
            return Err(Kind::Invalid);
        }
        let limit = match request.max_results {
            Some(0) | None => MAX_PAGE,
            Some(n) => (n as usize).min(MAX_PAGE),
        };
        let wanted = |folder: &&Folder| {
            let name = folder.name.as_str();
            name.strip_prefix(prefix)
                .is_some_and(|rest| !request.children_only || rest.matches('/').count() == 1)
                && after.is_none_or(|after| name > after)
        };
        let mut folders: Vec<_> = self
            .folders
            .values()
            .filter(wanted)
            .take(limit + 1)
            .cloned()
            .collect();
        let more = folders.len() > limit;
        folders.truncate(limit);
        let last = folders.last().map(|folder| folder.name.to_string());
        Ok(FolderPage {
            folders,
            next_page_token: last.filter(|_| more),
        })
    }

    pub(super) fn rename_folder(&mut self, request: &FolderRename) -> Result<Folder, Kind> {
        let (source, target) = (request.source.as_str(), request.target.as_str());
        let folder = self.folder(&request.source)?;
        if request
            .source_metageneration
            .is_some_and(|wanted| wanted != folder.metageneration)
        {
            return Err(Kind::Precondition);
        }
        if target.starts_with(source) {
            return Err(Kind::Invalid);
        }
        self.vacant(&request.target)?;
        let names = moved(self.folders.keys(), source, target, FolderName::parse)?;
        for (old, new) in names {
            if let Some(mut folder) = self.folders.remove(old.as_str()) {
                folder.name = new.clone();
                self.folders.insert(new, folder);
            }
        }
        let names = moved(self.live.keys(), source, target, ObjectName::parse)?;
        for (old, new) in names {
            if let Some(mut entry) = self.live.remove(old.as_str()) {
                entry.object.name = new.clone();
                self.live.insert(new, entry);
            }
        }
        self.folder(&request.target)
    }

    pub(super) fn delete_folder(
        &mut self,
        name: &FolderName,
        metageneration: Option<Metageneration>,
    ) -> Result<(), Kind> {
        let folder = self.folder(name)?;
        if metageneration.is_some_and(|wanted| wanted != folder.metageneration) {
            return Err(Kind::Precondition);
        }
        let inside = |held: &str| held.starts_with(name.as_str()) && held != name.as_str();
        let folders = self.folders.keys().any(|held| inside(held.as_str()));
        // An object of the folder's own name is in it too.
        let objects = |held: &ObjectName| held.as_str().starts_with(name.as_str());
        if folders || self.live.keys().any(objects) {
            return Err(Kind::NotEmpty);
        }
        self.folders.remove(name.as_str());
        Ok(())
    }
}

/// Names below `source`, each with the one that it has below `target`.
fn moved<'a, N, E>(
    names: impl Iterator<Item = &'a N>,
    source: &str,
    target: &str,
    parse: impl Fn(String) -> Result<N, E>,
) -> Result<Vec<(N, N)>, Kind>
where
    N: AsRef<str> + Clone + 'a,
{
    let below = names.filter_map(|name| {
        let rest = name.as_ref().strip_prefix(source)?;
        let renamed = parse(format!("{target}{rest}")).map_err(|_| Kind::Invalid);
        Some(renamed.map(|renamed| (name.clone(), renamed)))
    });
    below.collect()
}
