//! Getting hold of a mounted FUSE descriptor: by mount(2), through `fusermount3`, or from whoever passed one in.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{getegid, geteuid};

use super::options::Prepared;
use super::{Error, FS_TYPE, SUBTYPE};

const DEVICE: &str = "/dev/fuse";
/// Major and minor number of the FUSE device; the kernel's devices.txt reserves them.
const DEVICE_NUMBER: (u64, u64) = (10, 229);
const HELPER: &str = "fusermount3";

/// Mounts at `dir` and returns the descriptor to serve.
///
/// mount(2) where this process may, else the set-user-id helper. The helper opens the device with the caller's rights,
/// so a device that this process cannot open is reported before it is tried.
pub(super) fn mount(dir: &Path, options: &Prepared) -> Result<OwnedFd, Error> {
    let device = open()?;
    if !geteuid().is_root() {
        return mount_with_helper(dir, options);
    }
    match mount_directly(&device, dir, options) {
        Ok(()) => Ok(device.into()),
        Err(Errno::EPERM) => mount_with_helper(dir, options),
        Err(errno) => Err(Error::Mount {
            path: dir.to_owned(),
            source: errno.into(),
        }),
    }
}

/// Whether this process may open the device at all.
pub(super) fn check() -> Result<(), Error> {
    open().map(drop)
}

fn open() -> Result<File, Error> {
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.map_err(|source| match source.kind() {
        ErrorKind::NotFound => Error::NoDevice,
        ErrorKind::PermissionDenied => Error::DeviceDenied {
            mode: std::fs::metadata(DEVICE).map_or(0, |m| m.permissions().mode() & 0o7777),
        },
        _ if matches!(source.raw_os_error(), Some(code) if code == Errno::ENODEV as i32 || code == Errno::ENXIO as i32) => {
            Error::NoDevice
        }
        _ => Error::Io {
            what: "opening /dev/fuse",
            source,
        },
    })
}

fn mount_directly(device: &File, dir: &Path, options: &Prepared) -> Result<(), Errno> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        geteuid(),
        getegid()
    );
    for option in &options.data {
        data.push(',');
        data.push_str(option);
    }
    nix::mount::mount(
        Some(options.source.as_str()),
        dir,
        Some(FS_TYPE),
        options.flags,
        Some(data.as_str()),
    )
}

/// Runs the helper with one end of a socket as its standard input, on which it sends the mounted descriptor.
fn mount_with_helper(dir: &Path, options: &Prepared) -> Result<OwnedFd, Error> {
    let io = |what| move |source| Error::Io { what, source };
    let (ours, theirs) = UnixStream::pair().map_err(io("making a socket pair"))?;
    let mut words = vec![
        format!("fsname={}", options.source),
        format!("subtype={SUBTYPE}"),
    ];
    words.extend(options.words.iter().chain(&options.data).cloned());
    let mut child = Command::new(HELPER)
        .arg("-o")
        .arg(words.join(","))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::NoHelper,
            _ => io("starting fusermount3")(source),
        })?;
    let received = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr
            .read_to_string(&mut said)
            .map_err(io("reading fusermount3's message"))?;
    }
    child.wait().map_err(io("waiting for fusermount3"))?;
    received.map_err(|_| Error::Helper {
        said: said.trim().to_owned(),
    })
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut iov = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut iov,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(&raw) = descriptors.first()
        {
            return Ok(own(raw));
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

#[expect(
    unsafe_code,
    reason = "a descriptor that arrives as a number has to be owned somewhere"
)]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: both callers hold a number that was given to this process for keeps: just received from the kernel, or
    // checked to be an open FUSE device that the starter of the process passed on by name.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Asks the helper to end the mount at `dir`, lazily.
pub(super) fn unmount_with_helper(dir: &Path) -> Result<(), Error> {
    let output = Command::new(HELPER)
        .args(["-u", "-z", "--"])
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::NoHelper,
            _ => Error::Io {
                what: "starting fusermount3",
                source,
            },
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Helper {
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// The number in a path of the form `/dev/fd/N`, by which a CSI node driver passes an open and mounted descriptor.
pub(super) fn passed_number(path: &Path) -> Option<RawFd> {
    path.to_str()?.strip_prefix("/dev/fd/")?.parse().ok()
}

/// Takes over descriptor `raw`, which must be an open FUSE device that is not a standard stream.
pub(super) fn take_passed(raw: RawFd) -> Result<OwnedFd, Error> {
    let refuse = |why| Error::Descriptor { number: raw, why };
    if raw <= 2 {
        return Err(refuse("it is a standard stream"));
    }
    let metadata =
        std::fs::metadata(format!("/proc/self/fd/{raw}")).map_err(|_| refuse("it is not open"))?;
    let number = (
        nix::sys::stat::major(metadata.rdev()),
        nix::sys::stat::minor(metadata.rdev()),
    );
    if !metadata.file_type().is_char_device() || number != DEVICE_NUMBER {
        return Err(refuse("it is not a FUSE device"));
    }
    Ok(own(raw))
}

#[cfg(test)]
mod tests {
    use super::super::{MountOptions, mountinfo};
    use super::*;

    #[test]
    fn only_dev_fd_paths_name_a_descriptor() {
        assert_eq!(passed_number(Path::new("/dev/fd/3")), Some(3));
        for path in ["/dev/fd/", "/dev/fd/x", "/dev/fd/3/4", "/mnt", "dev/fd/3"] {
            assert_eq!(passed_number(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_descriptor_that_is_no_fuse_device_is_refused_and_stays_open() {
        let file = File::open("/dev/null").unwrap();
        for raw in [0, file.as_raw_fd(), 1_000_000] {
            let refused = take_passed(raw);
            assert!(matches!(refused, Err(Error::Descriptor { number, .. }) if number == raw));
        }
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn the_helper_mounts_and_unmounts() {
        if open().is_err() {
            use io::Write as _;
            let _ = writeln!(io::stderr(), "NOT RUN: needs /dev/fuse");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions {
            fs_name: "by-helper".into(),
            ..MountOptions::default()
        };
        let prepared = super::super::options::prepare(&options).unwrap();
        let descriptor = mount_with_helper(dir.path(), &prepared).unwrap();
        let mounts = mountinfo::read().unwrap();
        let mount = mountinfo::topmost(&mounts, dir.path()).unwrap().clone();
        assert_eq!(
            (mount.kind.as_str(), mount.source.as_str()),
            (FS_TYPE, "by-helper")
        );
        unmount_with_helper(dir.path()).unwrap();
        drop(descriptor);
        let mounts = mountinfo::read().unwrap();
        assert!(mountinfo::topmost(&mounts, dir.path()).is_none());
        let again = unmount_with_helper(dir.path());
        assert!(matches!(again, Err(Error::Helper { .. })));
    }

    #[test]
    fn the_helper_says_why_it_refuses() {
        let prepared = super::super::options::prepare(&MountOptions::default()).unwrap();
        let refused = mount_with_helper(Path::new("/nowhere/at/all"), &prepared);
        match refused {
            Err(Error::Helper { said }) => assert!(said.contains("/nowhere/at/all"), "{said}"),
            other => assert!(matches!(other, Err(Error::NoHelper)), "{other:?}"),
        }
    }

    #[test]
    fn a_helper_that_sends_nothing_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(receive_descriptor(&ours).is_err());
    }
}
