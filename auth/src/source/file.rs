//! The token that kubelet projects into the pod. Kubelet replaces it by swapping the `..data` link
//! of its directory at about four fifths of the token's life, so the path is opened afresh each
//! time and no descriptor is kept.

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;

use super::text_file::{LARGEST, TextFile, Unread};
use super::{Format, Source};
use crate::error::{Error, Kind, SourceFault};
use crate::secret::SubjectToken;

/// Reads the subject token from a file, the whole of it without the white space around it.
#[derive(Debug)]
pub struct FileSource {
    file: TextFile,
    format: Format,
}

impl FileSource {
    /// A source that reads `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            file: TextFile::new(path.into()),
            format: Format::Text,
        }
    }

    /// The same for a file with another format.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }
}

/// The error that an unread file means; `what` says which kind of file it is.
pub(crate) fn unreadable(file: &TextFile, what: &str, unread: Unread) -> Error {
    let path = file.path().display();
    let (fault, why) = match unread {
        Unread::Missing => (
            SourceFault::Missing,
            "does not exist: is the volume with it mounted there?".to_owned(),
        ),
        Unread::NotAFile => (
            SourceFault::Unreadable,
            "is not a regular file: name the file itself".to_owned(),
        ),
        Unread::TooLarge => (
            SourceFault::TooLarge,
            format!("holds more than {LARGEST} bytes: is another file meant?"),
        ),
        Unread::NotText => (
            SourceFault::Malformed,
            "holds bytes that are not text: is another file meant?".to_owned(),
        ),
        Unread::Stopped => (
            SourceFault::Unreadable,
            "could not be read: stopped".to_owned(),
        ),
        Unread::Io(error) => {
            let uid = nix::unistd::geteuid();
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; let that user read it (in a pod with fsGroup, or defaultMode of the volume)"
                }
                _ => "",
            };
            (
                SourceFault::Unreadable,
                format!("cannot be read by uid {uid}: {error}{fix}"),
            )
        }
    };
    Error::new(Kind::Source(fault), format!("the {what} file {path} {why}"))
}

#[async_trait]
impl Source for FileSource {
    async fn subject_token(&self) -> Result<SubjectToken, Error> {
        const WHAT: &str = "subject token";
        let text = self
            .file
            .read()
            .await
            .map_err(|unread| unreadable(&self.file, WHAT, unread))?;
        let place = format!("the {WHAT} file {}", self.file.path().display());
        self.format.extract(&text, &place)
    }

    fn describe(&self) -> String {
        self.file.path().display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::Arc;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::{TempDir, tempdir};

    use super::super::text_file::LARGEST;
    use super::*;

    async fn fault_of(path: impl Into<PathBuf>) -> SourceFault {
        let path = path.into();
        let error = FileSource::new(&path).subject_token().await.unwrap_err();
        assert!(
            error.to_string().contains(&path.display().to_string()),
            "{error}"
        );
        match error.kind() {
            Kind::Source(fault) => fault,
            other => panic!("{other:?}"),
        }
    }

    fn file_with(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
        let dir = tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[tokio::test]
    async fn what_editors_put_around_a_token_is_trimmed() {
        for around in [" a.b.c\n", "a.b.c\r\n", "\u{feff}a.b.c\r\n", "\n\ta.b.c"] {
            let (_dir, path) = file_with(around);
            let source = FileSource::new(&path);
            assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.c");
            assert_eq!(source.describe(), path.display().to_string());
        }
    }

    #[tokio::test]
    async fn a_huge_file_and_a_loop_of_links_are_refused() {
        let (_dir, path) = file_with("");
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(100 << 20).unwrap();
        assert_eq!(fault_of(&path).await, SourceFault::TooLarge);
        let (one, other) = (path.with_extension("1"), path.with_extension("2"));
        symlink(&one, &other).unwrap();
        symlink(&other, &one).unwrap();
        assert_eq!(fault_of(&one).await, SourceFault::Unreadable);
        assert_eq!(fault_of("/dev/zero").await, SourceFault::Unreadable);
    }

    #[tokio::test]
    async fn a_swap_of_the_data_link_is_seen_at_the_next_read() {
        let dir = tempdir().unwrap();
        let generation = |name: &str, token: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("token"), token).unwrap();
            symlink(name, dir.path().join("..tmp")).unwrap();
            fs::rename(dir.path().join("..tmp"), dir.path().join("..data")).unwrap();
        };
        generation("..1", "a.b.1");
        symlink("..data/token", dir.path().join("token")).unwrap();
        let source = FileSource::new(dir.path().join("token"));
        assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.1");
        generation("..2", "a.b.2");
        fs::remove_dir_all(dir.path().join("..1")).unwrap();
        assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.2");
    }

    #[tokio::test]
    async fn each_fault_has_its_name() {
        let dir = tempdir().unwrap();
        assert_eq!(
            fault_of(dir.path().join("none")).await,
            SourceFault::Missing
        );
        assert_eq!(fault_of(dir.path()).await, SourceFault::Unreadable);
        let below_a_file = file_with("x");
        assert_eq!(
            fault_of(below_a_file.1.join("token")).await,
            SourceFault::Unreadable
        );
        for (content, fault) in [
            (&b" \n"[..], SourceFault::Empty),
            (&b""[..], SourceFault::Empty),
            (&b"\xff\xfe"[..], SourceFault::Malformed),
            // UTF-16, and nothing but the mark of UTF-8.
            (&b"\xff\xfea\0.\0"[..], SourceFault::Malformed),
            (&b"\xef\xbb\xbf\n"[..], SourceFault::Empty),
            (&[b'a'; LARGEST + 1][..], SourceFault::TooLarge),
            (
                &br#"{"type":"authorized_user"}"#[..],
                SourceFault::Malformed,
            ),
        ] {
            let (_dir, path) = file_with(content);
            assert_eq!(fault_of(path).await, fault);
        }
    }

    #[tokio::test]
    async fn a_token_in_json_is_taken_out_of_its_field() {
        let format = Format::Json {
            field: "id_token".to_owned(),
        };
        let (_dir, path) = file_with(r#"{"id_token":" a.b.c ","more":1}"#);
        let source = FileSource::new(path).with_format(format.clone());
        assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.c");
        for (content, fault) in [
            ("", SourceFault::Empty),
            (r#"{"id_token":""}"#, SourceFault::Empty),
            (r#"{"id_tok"#, SourceFault::Malformed),
            (r#"{"other":"hidden"}"#, SourceFault::Malformed),
            (r#"{"id_token":7}"#, SourceFault::Malformed),
        ] {
            let (_dir, path) = file_with(content);
            let source = FileSource::new(path).with_format(format.clone());
            let error = source.subject_token().await.unwrap_err();
            assert_eq!(error.kind(), Kind::Source(fault), "{content}");
            assert!(!error.message().contains("hidden"));
        }
    }

    #[tokio::test]
    async fn the_largest_file_still_is_a_token() {
        let (_dir, path) = file_with([b'a'; LARGEST]);
        let token = FileSource::new(path).subject_token().await.unwrap();
        assert_eq!(token.expose().len(), LARGEST);
    }

    #[tokio::test]
    async fn a_pipe_that_nobody_writes_is_refused_and_not_waited_for() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("pipe");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        assert_eq!(fault_of(path).await, SourceFault::Unreadable);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_holds_back_the_reads_after_it() {
        let (_dir, path) = file_with("a.b.c");
        let source = FileSource::new(path);
        let hung = Arc::clone(&source.file.reading)
            .acquire_owned()
            .await
            .unwrap();
        let second =
            tokio::time::timeout(std::time::Duration::from_secs(5), source.subject_token());
        assert!(second.await.is_err());
        drop(hung);
        assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.c");
    }
}
