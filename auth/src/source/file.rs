//! The token that kubelet projects into the pod. Kubelet replaces it by swapping the `..data` link
//! of its directory at about four fifths of the token's life, so the path is opened afresh each
//! time and no descriptor is kept.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use nix::fcntl::OFlag;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::Source;
use crate::error::{Error, Kind, SourceFault};
use crate::secret::SubjectToken;

/// Longer than any token: kubelet's are one or two KiB.
const LARGEST: usize = 64 << 10;

/// How often a path that vanished is looked at again at once. Between the two halves of a lookup
/// through `..data`, kubelet may have removed the old directory; the next lookup finds the new one.
const LOOKS: usize = 3;

/// Reads the subject token from a file, the whole of it without the white space around it.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    /// Held by the one read that runs. A read that hangs (a dead network file system) outlives the
    /// deadline of its caller; the reads after it wait here instead of filling the thread pool.
    reading: Arc<Semaphore>,
}

impl FileSource {
    /// A source that reads `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            reading: Arc::new(Semaphore::new(1)),
        }
    }

    fn fault(&self, fault: SourceFault, what: impl std::fmt::Display) -> Error {
        let path = self.path.display();
        let message = format!("the subject token file {path} {what}");
        Error::new(Kind::Source(fault), message)
    }

    fn explain(&self, unread: Unread) -> Error {
        match unread {
            Unread::Missing => self.fault(
                SourceFault::Missing,
                "does not exist: is the projected service account token volume mounted there?",
            ),
            Unread::NotAFile => self.fault(SourceFault::Unreadable, "is not a regular file"),
            Unread::TooLarge => {
                let what = format!("holds more than {LARGEST} bytes, which is no token");
                self.fault(SourceFault::TooLarge, what)
            }
            Unread::NotText => self.fault(SourceFault::Malformed, "holds bytes that are not text"),
            Unread::Io(error) => {
                let what = format!("cannot be read by uid {}: {error}", nix::unistd::geteuid());
                self.fault(SourceFault::Unreadable, what)
            }
        }
    }
}

#[async_trait]
impl Source for FileSource {
    async fn subject_token(&self) -> Result<SubjectToken, Error> {
        let alone = Arc::clone(&self.reading).acquire_owned().await;
        let path = self.path.clone();
        let reading = spawn_blocking(move || {
            let _alone = alone;
            read(&path)
        });
        let text = match reading.await {
            Ok(read) => read.map_err(|unread| self.explain(unread))?,
            Err(_) => return Err(self.fault(SourceFault::Unreadable, "could not be read: stopped")),
        };
        SubjectToken::new(text)
            .ok_or_else(|| self.fault(SourceFault::Empty, "is empty: is it being written?"))
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

enum Unread {
    Missing,
    NotAFile,
    TooLarge,
    NotText,
    Io(io::Error),
}

fn read(path: &Path) -> Result<String, Unread> {
    let mut file = open(path)?;
    if !file.metadata().map_err(Unread::Io)?.is_file() {
        return Err(Unread::NotAFile);
    }
    // Allocated once: a buffer that grows leaves copies behind that nobody zeroes.
    let mut buffer = Zeroizing::new(vec![0; LARGEST + 1]);
    let mut length = 0;
    loop {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unread::Io(error)),
        }
    }
    if length > LARGEST {
        return Err(Unread::TooLarge);
    }
    std::str::from_utf8(&buffer[..length])
        .map(str::to_owned)
        .map_err(|_| Unread::NotText)
}

fn open(path: &Path) -> Result<File, Unread> {
    for _ in 0..LOOKS {
        // Without O_NONBLOCK, opening a FIFO waits for a writer, perhaps for ever.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(path);
        match opened {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Unread::Io(error)),
        }
    }
    Err(Unread::Missing)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::{TempDir, tempdir};

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
    async fn white_space_is_trimmed() {
        let (_dir, path) = file_with(" a.b.c\n");
        let source = FileSource::new(&path);
        assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.c");
        assert_eq!(source.describe(), path.display().to_string());
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
            (&[b'a'; LARGEST + 1][..], SourceFault::TooLarge),
        ] {
            let (_dir, path) = file_with(content);
            assert_eq!(fault_of(path).await, fault);
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
        let hung = Arc::clone(&source.reading).acquire_owned().await.unwrap();
        let second =
            tokio::time::timeout(std::time::Duration::from_secs(5), source.subject_token());
        assert!(second.await.is_err());
        drop(hung);
        assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.c");
    }
}
