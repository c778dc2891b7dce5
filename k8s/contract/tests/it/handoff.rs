//! Descriptors over a real pair of sockets.

use std::fs::File;
use std::io::{IoSlice, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use gcsmount_k8s_contract::handoff::{self, Form, MAX_MESSAGE, MountMessage};
use gcsmount_k8s_contract::{Error, Kind};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

const JSON: &[u8] = br#"{"bucketName":"bucket-a","options":["implicit-dirs"]}"#;

fn message(options: &[&str]) -> MountMessage {
    MountMessage {
        volume_name: None,
        bucket_name: "bucket-a".into(),
        options: options.iter().map(ToString::to_string).collect(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn receive(socket: &UnixStream) -> Result<(MountMessage, OwnedFd), Error> {
    handoff::receive(socket.as_fd(), soon())
}

fn kind(received: Result<(MountMessage, OwnedFd), Error>) -> Kind {
    received.unwrap_err().kind()
}

/// Sends as the stock driver does: one message of the socket, without framing.
fn send_raw(socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() {
        &[][..]
    } else {
        &rights
    };
    let sent = sendmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::empty(),
        None,
    );
    assert_eq!(sent, Ok(bytes.len()));
}

/// How many descriptors of this process are open on the file at `path`. Other tests run at the same time, so only an
/// own file can be counted.
fn open_on(path: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target == path)
        .count()
}

struct Device {
    file: File,
    path: tempfile::TempPath,
}

fn device() -> Device {
    let (mut file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
    file.write_all(b"device").unwrap();
    Device { file, path }
}

#[test]
fn the_stock_message_of_section_2_5_and_its_descriptor_arrive() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    send_raw(&driver, JSON, &[device.file.as_raw_fd()]);
    let (received, descriptor) = receive(&sidecar).unwrap();
    assert_eq!(received, message(&["implicit-dirs"]));
    let mut copy = File::from(descriptor);
    copy.rewind().unwrap();
    let mut text = String::new();
    copy.read_to_string(&mut text).unwrap();
    assert_eq!(text, "device");
}

#[test]
fn the_descriptor_closes_on_exec_and_blocks() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let (other_end, _own_end) = UnixStream::pair().unwrap();
    other_end.set_nonblocking(true).unwrap();
    handoff::send(
        driver.as_fd(),
        &message(&[]),
        other_end.as_fd(),
        Form::Stock,
    )
    .unwrap();
    let (_, descriptor) = receive(&sidecar).unwrap();
    let on_exec = fcntl(&descriptor, FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(on_exec).contains(FdFlag::FD_CLOEXEC));
    let status = fcntl(&descriptor, FcntlArg::F_GETFL).unwrap();
    assert!(!OFlag::from_bits_retain(status).contains(OFlag::O_NONBLOCK));
}

#[test]
fn long_options_arrive_in_the_framed_form_though_the_socket_holds_less() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    let long = "x".repeat(MAX_MESSAGE - 100);
    let sent = message(&[&long]);
    std::thread::scope(|scope| {
        let sending =
            scope.spawn(|| handoff::send(driver.as_fd(), &sent, device.file.as_fd(), Form::Framed));
        let (received, _) = receive(&sidecar).unwrap();
        assert_eq!(received, sent);
        sending.join().unwrap().unwrap();
    });
}

#[test]
fn a_stock_message_longer_than_a_stock_sidecar_reads_arrives_here() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    let long = "x".repeat(6000);
    let json = format!(r#"{{"bucketName":"bucket-a","options":["{long}"]}}"#);
    send_raw(&driver, json.as_bytes(), &[device.file.as_raw_fd()]);
    assert_eq!(receive(&sidecar).unwrap().0, message(&[&long]));
}

#[test]
fn a_message_too_long_for_the_stock_form_is_not_sent_at_all() {
    let (driver, mut sidecar) = UnixStream::pair().unwrap();
    let long = "x".repeat(5000);
    let refused = handoff::send(
        driver.as_fd(),
        &message(&[&long]),
        device().file.as_fd(),
        Form::Stock,
    );
    assert_eq!(refused.unwrap_err().kind(), Kind::TooLong);
    drop(driver);
    assert_eq!(sidecar.read(&mut [0]).unwrap(), 0);
}

#[test]
fn two_descriptors_are_refused_and_closed() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    let raw = device.file.as_raw_fd();
    send_raw(&driver, JSON, &[raw, raw]);
    let error = receive(&sidecar).unwrap_err();
    assert_eq!(error.kind(), Kind::Descriptors);
    assert!(error.to_string().contains("2 descriptors"), "{error}");
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn as_many_descriptors_as_the_kernel_carries_are_closed_too() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    send_raw(&driver, JSON, &[device.file.as_raw_fd(); 253]);
    assert_eq!(kind(receive(&sidecar)), Kind::Descriptors);
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn a_second_descriptor_with_the_rest_of_the_message_is_refused_and_closed() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    let raw = device.file.as_raw_fd();
    send_raw(&driver, &JSON[..10], &[raw]);
    send_raw(&driver, &JSON[10..], &[raw]);
    assert_eq!(kind(receive(&sidecar)), Kind::Descriptors);
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn a_message_without_a_descriptor_is_refused() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    send_raw(&driver, JSON, &[]);
    let error = receive(&sidecar).unwrap_err();
    assert_eq!(error.kind(), Kind::Descriptors);
    assert!(error.to_string().contains("0 descriptors"), "{error}");
}

#[test]
fn a_message_cut_short_is_refused_and_its_descriptor_closed() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    send_raw(&driver, &JSON[..20], &[device.file.as_raw_fd()]);
    drop(driver);
    let error = receive(&sidecar).unwrap_err();
    assert_eq!(error.kind(), Kind::Truncated);
    assert!(error.to_string().contains("after 20 bytes"), "{error}");
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn a_socket_closed_without_a_word_is_told() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    drop(driver);
    assert_eq!(kind(receive(&sidecar)), Kind::Truncated);
}

#[test]
fn junk_is_refused_and_its_descriptor_closed() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    send_raw(
        &driver,
        b"GET / HTTP/1.1\r\n\r\n",
        &[device.file.as_raw_fd()],
    );
    assert_eq!(kind(receive(&sidecar)), Kind::Malformed);
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn a_message_beyond_the_limit_is_refused_before_it_is_read() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    let raw = device.file.as_raw_fd();
    send_raw(&driver, b"\xf5GMF\x01\xff\xff\xff\xff", &[raw]);
    assert_eq!(kind(receive(&sidecar)), Kind::TooLong);
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn a_driver_that_sends_byte_by_byte_is_understood() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send_raw(&driver, &JSON[..1], &[device.file.as_raw_fd()]);
            for byte in JSON[1..].chunks(1) {
                send_raw(&driver, byte, &[]);
            }
        });
        assert_eq!(receive(&sidecar).unwrap().0, message(&["implicit-dirs"]));
    });
}

#[test]
fn a_driver_that_stops_in_between_is_late_and_its_descriptor_closed() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    let device = device();
    send_raw(&driver, &JSON[..20], &[device.file.as_raw_fd()]);
    let error = handoff::receive(sidecar.as_fd(), Instant::now()).unwrap_err();
    assert_eq!(error.kind(), Kind::Late);
    assert!(error.to_string().contains("20 bytes"), "{error}");
    assert_eq!(open_on(&device.path), 1);
}

#[test]
fn a_message_that_is_there_is_taken_at_its_deadline_from_a_socket_that_does_not_block() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    sidecar.set_nonblocking(true).unwrap();
    send_raw(&driver, JSON, &[device().file.as_raw_fd()]);
    assert!(handoff::receive(sidecar.as_fd(), Instant::now()).is_ok());
}

#[test]
fn a_receiver_that_takes_nothing_makes_the_sender_late() {
    let (driver, _sidecar) = UnixStream::pair().unwrap();
    driver
        .set_write_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let long = "x".repeat(MAX_MESSAGE - 100);
    let late = handoff::send(
        driver.as_fd(),
        &message(&[&long]),
        device().file.as_fd(),
        Form::Framed,
    );
    assert_eq!(late.unwrap_err().kind(), Kind::Late);
}

#[test]
fn a_receiver_that_is_gone_is_an_error_and_no_signal() {
    let (driver, sidecar) = UnixStream::pair().unwrap();
    drop(sidecar);
    let gone = handoff::send(
        driver.as_fd(),
        &message(&[]),
        device().file.as_fd(),
        Form::Stock,
    );
    assert_eq!(gone.unwrap_err().kind(), Kind::Io);
}
