//! The parts of a machine that a sidecar deals with: the node driver, which mounts and hands descriptors over, and the
//! container, which has a root of its own and no rights.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gcsmount_k8s_contract::handoff::{Form, MountMessage, send};
use gcsmount_k8s_contract::layout::{Base, SIDECAR_UID, Volume};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::kit::{LIMIT, not_run};

/// One pod's share of a node: its `gke-gcsfuse-tmp` volume and the targets of its volumes.
pub(crate) struct Node {
    dir: PathBuf,
    base: Base,
}

impl Node {
    pub(crate) fn new(dir: PathBuf) -> Self {
        let base = Base(dir.join("gcsfuse-tmp/.volumes"));
        fs::create_dir_all(&base.0).unwrap();
        fs::create_dir_all(dir.join("buffer")).unwrap();
        for owned in [dir.join("gcsfuse-tmp"), base.0.clone(), dir.join("buffer")] {
            chown(owned, Some(SIDECAR_UID), Some(SIDECAR_UID)).unwrap();
        }
        Self { dir, base }
    }

    pub(crate) fn volume(&self, name: &str) -> Volume {
        self.base.volume(name)
    }

    /// What is `/gcsfuse-buffer` in the container.
    pub(crate) fn buffer(&self) -> PathBuf {
        self.dir.join("buffer")
    }

    pub(crate) fn exit_file(&self) -> PathBuf {
        self.base.exit_file()
    }

    /// Mounts a volume and offers its descriptor, as the stock node driver does.
    pub(crate) fn publish(&self, name: &str, bucket: &str, options: &[&str]) -> Published {
        let volume = self.volume(name);
        fs::create_dir_all(&volume.dir).unwrap();
        for stale in [volume.socket(), volume.error()] {
            let _ = fs::remove_file(stale);
        }
        let listener = UnixListener::bind(volume.socket()).unwrap();
        for owned in [volume.dir.clone(), volume.socket()] {
            chown(owned, Some(SIDECAR_UID), Some(SIDECAR_UID)).unwrap();
        }
        let target = self.dir.join("targets").join(name);
        fs::create_dir_all(&target).unwrap();
        let fuse = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap();
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            fuse.as_raw_fd()
        );
        let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        mount(
            Some(bucket),
            &target,
            Some("fuse"),
            flags,
            Some(data.as_str()),
        )
        .unwrap();
        let message = MountMessage {
            volume_name: None,
            bucket_name: bucket.into(),
            options: options.iter().map(|&option| option.into()).collect(),
        };
        let handing_over = tokio::task::spawn_blocking(move || {
            let (stream, _) = listener.accept().unwrap();
            send(stream.as_fd(), &message, fuse.as_fd(), Form::Stock).unwrap();
        });
        Published {
            target,
            volume,
            handing_over,
        }
    }
}

/// A volume that was published. Dropped, it is unmounted as the driver would when nothing else helps.
pub(crate) struct Published {
    pub(crate) target: PathBuf,
    pub(crate) volume: Volume,
    handing_over: JoinHandle<()>,
}

impl Published {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }

    /// Waits until the sidecar has taken the descriptor.
    pub(crate) async fn handed_over(&mut self) {
        timeout(LIMIT, &mut self.handing_over)
            .await
            .expect("the sidecar dials")
            .unwrap();
    }

    /// What the driver would report of the volume.
    pub(crate) fn error(&self) -> Option<String> {
        fs::read_to_string(self.volume.error()).ok()
    }

    /// Unmounts as the driver does at the end of a pod.
    pub(crate) fn unpublish(&self) {
        umount2(&self.target, MntFlags::empty()).unwrap();
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = umount2(&self.target, MntFlags::MNT_DETACH);
        self.handing_over.abort();
    }
}

/// Makes a container of this process: a read-only root with the program and the volumes, nothing of the host's mounts, uid
/// 65534, no capability, nothing to gain.
const CONTAINER: &str = r#"
set -e
root=$1 node=$2 token=$3 program=$4
shift 4
if [ -n "$CGROUP" ]; then echo $$ > "$CGROUP/cgroup.procs"; fi
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir usr etc proc sys dev old gcsfuse-tmp gcsfuse-buffer bin lib lib64
touch gcsmount dev/null
mount --bind /dev/null dev/null
for dir in usr bin lib lib64 etc; do
  if [ -d /$dir ]; then mount --bind "$(readlink -f /$dir)" $dir; fi
done
mount --rbind /proc proc
mount --rbind /sys sys
mount --bind "$program" gcsmount
mount --bind "$node/gcsfuse-tmp" gcsfuse-tmp
mount --bind "$node/buffer" gcsfuse-buffer
if [ -n "$token" ]; then mkdir gcsfuse-sa-token; mount --bind "$token" gcsfuse-sa-token; fi
mount -o remount,ro,bind "$root"
pivot_root . old
umount -l old
exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
  env -i NATIVE_SIDECAR="$NATIVE" GCE_METADATA_HOST="$METADATA" $MORE /gcsmount sidecar "$@"
"#;

/// A control group that limits memory. Dropped, it goes, once its processes have ended.
pub(crate) struct Group(PathBuf);

impl Group {
    /// With so many bytes. `None`, said loudly, where there can be none.
    pub(crate) fn new(name: &str, bytes: u64) -> Option<Self> {
        let (v1, v2) = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup");
        let (above, limit) = match Path::new(v1).is_dir() {
            true => (v1, "memory.limit_in_bytes"),
            false => (v2, "memory.max"),
        };
        let group = Path::new(above).join(format!("gcsmount-{name}-{}", std::process::id()));
        let made =
            fs::create_dir(&group).and_then(|()| fs::write(group.join(limit), bytes.to_string()));
        if made.is_err() {
            let _ = fs::remove_dir(&group);
            not_run("a control group of its own for memory");
            return None;
        }
        Some(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// How a sidecar is started.
#[derive(Default)]
pub(crate) struct Container {
    /// The directory that is its token volume, if it has one.
    pub(crate) token: Option<PathBuf>,
    /// Whether it is an init container that restarts always.
    pub(crate) native: bool,
    /// The operator's flags.
    pub(crate) flags: Vec<String>,
    /// What else is in its environment, as `NAME=VALUE` without spaces.
    pub(crate) env: Vec<String>,
    /// The control group that it runs in.
    pub(crate) group: Option<Group>,
}

/// A sidecar that runs.
pub(crate) struct Sidecar {
    child: Child,
    pid: i32,
    log: PathBuf,
}

impl Container {
    /// Starts it in a mount namespace of its own, and in this thread's network.
    pub(crate) fn start(&self, node: &Node, program: &Path) -> Sidecar {
        let root = node.dir.join("root");
        fs::create_dir_all(&root).unwrap();
        fs::set_permissions(&node.dir, fs::Permissions::from_mode(0o755)).unwrap();
        let log = node.dir.join("log");
        let token = self.token.clone().unwrap_or_default();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", CONTAINER, "container"])
            .args([root.as_os_str(), node.dir.as_os_str()])
            .args([token.as_os_str(), program.as_os_str()])
            .args(&self.flags)
            .env("MORE", self.env.join(" "))
            .env(
                "CGROUP",
                self.group.as_ref().map_or(Path::new(""), |group| &group.0),
            )
            .env("NATIVE", if self.native { "TRUE" } else { "" })
            .env("METADATA", "169.254.169.254")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                File::options()
                    .create(true)
                    .append(true)
                    .open(&log)
                    .unwrap(),
            )
            .kill_on_drop(true);
        let child = command.spawn().expect("unshare starts");
        let pid = i32::try_from(child.id().expect("it runs")).unwrap();
        Sidecar { child, pid, log }
    }
}

impl Sidecar {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("it runs");
    }

    /// A line of the kernel's account of the process, in KiB.
    pub(crate) fn kib(&self, line: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it runs");
        let value = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        value.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// What the process may and may not, as the kernel has it.
    pub(crate) fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it runs")
    }

    /// Waits for its end: the exit code.
    pub(crate) async fn ended(&mut self, limit: Duration) -> Option<i32> {
        let ended = timeout(limit, self.child.wait()).await;
        ended.expect("the sidecar ends in time").unwrap().code()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the sidecar's log:\n{}", self.log());
        }
        let _ = self.child.start_kill();
    }
}
