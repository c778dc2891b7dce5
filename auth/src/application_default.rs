//! Where application default credentials are, for a program that was told nothing else. Pure: who
//! asks says what the environment holds and which files exist. See "How Application Default
//! Credentials works" in the authentication documentation of Google Cloud.

use std::path::{Path, PathBuf};

/// The variable that names a credential file.
pub const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// gcloud's variable for the directory of its settings.
const GCLOUD_DIRECTORY: &str = "CLOUDSDK_CONFIG";

/// What `gcloud auth application-default login` writes there.
const WELL_KNOWN: &str = "application_default_credentials.json";

/// Where application default credentials are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationDefault {
    /// In the file that [`VARIABLE`] names, which need not exist: a file that was named is never
    /// replaced by another source.
    Named(PathBuf),
    /// In gcloud's own file.
    WellKnown(PathBuf),
    /// At the metadata server, whoever it answers for. See [`Metadata`](crate::Metadata).
    MetadataServer,
}

impl ApplicationDefault {
    /// Looks in the order of Google's libraries. `variable` looks up the environment, where an empty
    /// value counts as none; `home` is the user's directory; `is_file` tells whether a file is
    /// there, one that cannot be read included.
    #[must_use]
    pub fn locate<V: Into<PathBuf>>(
        variable: impl Fn(&str) -> Option<V>,
        home: Option<&Path>,
        is_file: impl Fn(&Path) -> bool,
    ) -> Self {
        let named = |name| {
            variable(name)
                .map(Into::into)
                .filter(|path: &PathBuf| !path.as_os_str().is_empty())
        };
        if let Some(path) = named(VARIABLE) {
            return Self::Named(path);
        }
        named(GCLOUD_DIRECTORY)
            .or_else(|| home.map(|home| home.join(".config/gcloud")))
            .map(|directory| directory.join(WELL_KNOWN))
            .filter(|path| is_file(path))
            .map_or(Self::MetadataServer, Self::WellKnown)
    }

    /// The same for this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::locate(
            |name| std::env::var_os(name),
            std::env::home_dir().as_deref(),
            Path::is_file,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_named_file_then_gcloud_s_then_the_metadata_server() {
        let usual = "/home/u/.config/gcloud/application_default_credentials.json";
        let moved = "/settings/application_default_credentials.json";
        let named = |path: &str| ApplicationDefault::Named(path.into());
        let well_known = |path: &str| ApplicationDefault::WellKnown(path.into());
        let nowhere = ApplicationDefault::MetadataServer;
        type Case<'a> = (
            &'a str,
            &'a str,
            Option<&'a str>,
            &'a [&'a str],
            ApplicationDefault,
        );
        let table: [Case<'_>; 11] = [
            ("/key", "", Some("/home/u"), &[usual], named("/key")),
            ("/key", "/settings", None, &[moved], named("/key")),
            ("/key", "", None, &[], named("/key")),
            ("relative", "", None, &[], named("relative")),
            ("", "", Some("/home/u"), &[usual], well_known(usual)),
            (
                "",
                "/settings",
                Some("/home/u"),
                &[usual, moved],
                well_known(moved),
            ),
            ("", "/settings", None, &[moved], well_known(moved)),
            // gcloud with other settings has not logged in there.
            ("", "/settings", Some("/home/u"), &[usual], nowhere.clone()),
            ("", "", Some("/home/u"), &[], nowhere.clone()),
            ("", "", Some("/home/u"), &[moved], nowhere.clone()),
            ("", "", None, &[usual], nowhere),
        ];
        for (file, directory, home, files, expected) in table {
            let variable = |name: &str| match name {
                VARIABLE => Some(file),
                GCLOUD_DIRECTORY => Some(directory),
                other => panic!("{other} was looked up"),
            };
            let is_file = |path: &Path| files.contains(&path.to_str().unwrap());
            let found = ApplicationDefault::locate(variable, home.map(Path::new), is_file);
            assert_eq!(found, expected, "{file} {directory} {home:?} {files:?}");
        }
    }

    #[test]
    fn a_path_that_is_no_text_is_taken_as_it_is_and_what_is_not_set_is_not_there() {
        let path = Path::new(OsStr::from_bytes(b"/k\xff"));
        let variable = |name: &str| (name == VARIABLE).then_some(path);
        let found = ApplicationDefault::locate(variable, None, |_| panic!("looked at a file"));
        assert_eq!(found, ApplicationDefault::Named(path.to_owned()));
        let found = ApplicationDefault::locate(|_| None::<PathBuf>, None, |_| true);
        assert_eq!(found, ApplicationDefault::MetadataServer);
    }
}
