//! The receiving side: bytes and descriptors as they arrive, until they make one message with one descriptor.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::{HEADER, MAGIC, MAX_MESSAGE, MountMessage, VERSION};
use crate::{Error, Kind};

/// The most descriptors that the kernel lets one message carry (`SCM_MAX_FD`). Room for all of them means that none is
/// lost in between: each is owned here, and closed if it is too many.
const MAX_DESCRIPTORS: usize = 253;
const PIECE: usize = 8 << 10;

/// Receives a message in either form and its descriptor, which closes on exec and blocks. Waits until `deadline`,
/// whether or not the socket blocks. A message in the stock form may be longer than a stock sidecar could take, up to
/// [`MAX_MESSAGE`].
///
/// # Errors
/// It was late, cut short, too long, not a message, or came with any other number of descriptors than one; those that
/// came are closed.
pub fn receive(
    socket: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<(MountMessage, OwnedFd), Error> {
    let mut receiving = Receiving::default();
    loop {
        wait(socket, deadline, receiving.got())?;
        if let Some(whole) = receiving.take(socket)? {
            return Ok(whole);
        }
    }
}

/// A message on its way in, for receivers that wait by themselves.
#[derive(Default)]
pub struct Receiving {
    incoming: Incoming,
    descriptors: Vec<OwnedFd>,
}

impl Receiving {
    /// How many bytes of the message there are by now.
    #[must_use]
    pub fn got(&self) -> usize {
        self.incoming.bytes.len()
    }

    /// Takes all that has arrived, and never waits. `None`: there has to come more. Of no use once it failed or
    /// returned a message.
    ///
    /// # Errors
    /// As [`receive`], without being late.
    pub fn take(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> Result<Option<(MountMessage, OwnedFd)>, Error> {
        let mut piece = [0; PIECE];
        while let Some(length) = receive_piece(socket, &mut piece, &mut self.descriptors)? {
            if length == 0 {
                return Err(hung_up(self.got()));
            }
            self.incoming.push(&piece[..length])?;
            if self.descriptors.len() > 1 {
                return Err(wrong_number(self.descriptors.len()));
            }
            if let Some(json) = self.incoming.json()? {
                let message = MountMessage::decode(json)?;
                let descriptor = self.descriptors.pop().ok_or_else(|| wrong_number(0))?;
                block(&descriptor)?;
                return Ok(Some((message, descriptor)));
            }
        }
        Ok(None)
    }
}

/// The error of a message that was not there in time, of which `got` bytes came.
#[must_use]
pub fn late(got: usize) -> Error {
    Error::new(
        Kind::Late,
        format!("the node driver sent {got} bytes of the mount message and no more in time"),
    )
}

fn hung_up(got: usize) -> Error {
    Error::new(
        Kind::Truncated,
        format!("the node driver hung up after {got} bytes of the mount message"),
    )
}

fn wrong_number(found: usize) -> Error {
    Error::new(
        Kind::Descriptors,
        format!(
            "{found} descriptors came with the mount message, and one FUSE device was expected"
        ),
    )
}

/// Waits until there is something to receive, or the end of it.
fn wait(socket: BorrowedFd<'_>, deadline: Instant, got: usize) -> Result<(), Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last wait does not become a busy one.
        let millis = left.saturating_add(Duration::from_micros(999)).as_millis();
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut sockets = [PollFd::new(socket, PollFlags::POLLIN)];
        match poll(&mut sockets, timeout) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::io("wait for the mount message", errno)),
            Ok(0) if left.is_zero() => {
                return Err(late(got));
            }
            Ok(0) => {}
            Ok(_) => return Ok(()),
        }
    }
}

/// Receives what is there, if anything: the number of bytes, 0 at the end.
fn receive_piece(
    socket: BorrowedFd<'_>,
    piece: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<Option<usize>, Error> {
    let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut pieces = [IoSliceMut::new(piece)];
    let received = match recvmsg::<()>(
        socket.as_raw_fd(),
        &mut pieces,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT,
    ) {
        // A receive that does not wait is not interrupted.
        Err(Errno::EAGAIN) => return Ok(None),
        other => other.map_err(|errno| Error::io("receive the mount message", errno))?,
    };
    let controls = received.cmsgs().map_err(|_| {
        // The kernel had no descriptor number left to give.
        Error::new(
            Kind::Descriptors,
            "the descriptor of the mount message was lost: too many files are open here",
        )
    })?;
    for control in controls {
        if let ControlMessageOwned::ScmRights(raw) = control {
            descriptors.extend(raw.into_iter().map(own));
        }
    }
    Ok(Some(received.bytes))
}

#[expect(
    unsafe_code,
    reason = "a descriptor that arrives as a number has to be owned somewhere"
)]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this number for this process, and nobody else has seen it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Takes `O_NONBLOCK` off: a session's thread would spin on such a descriptor.
fn block(descriptor: &OwnedFd) -> Result<(), Error> {
    let failed = |errno: Errno| Error::io("make the received descriptor block", errno);
    let flags = OFlag::from_bits_retain(fcntl(descriptor, FcntlArg::F_GETFL).map_err(failed)?);
    if flags.contains(OFlag::O_NONBLOCK) {
        fcntl(descriptor, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK)).map_err(failed)?;
    }
    Ok(())
}

/// The bytes so far, looked at once each.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    object: Object,
}

impl Incoming {
    /// Takes the next bytes.
    fn push(&mut self, piece: &[u8]) -> Result<(), Error> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        if is_frame(&self.bytes) {
            return Ok(());
        }
        self.object.scan(&self.bytes, begin)?;
        if self.object.end.is_none() && self.bytes.len() > MAX_MESSAGE {
            return Err(too_long(self.bytes.len()));
        }
        Ok(())
    }

    /// The JSON, once it is complete. Nothing may follow it.
    fn json(&self) -> Result<Option<&[u8]>, Error> {
        let (begin, end) = if is_frame(&self.bytes) {
            match frame_end(&self.bytes)? {
                None => return Ok(None),
                Some(end) => (HEADER, end),
            }
        } else {
            match self.object.end {
                None => return Ok(None),
                Some(end) => (0, end),
            }
        };
        if self.bytes.len() < end {
            return Ok(None);
        }
        let after = &self.bytes[end..];
        if !after.iter().all(u8::is_ascii_whitespace) {
            return Err(Error::new(
                Kind::Malformed,
                format!(
                    "{} bytes follow the mount message, which ends at byte {end}",
                    after.len()
                ),
            ));
        }
        Ok(Some(&self.bytes[begin..end]))
    }
}

fn is_frame(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MAGIC[0])
}

fn too_long(length: usize) -> Error {
    Error::new(
        Kind::TooLong,
        format!("a mount message of {length} bytes or more, and {MAX_MESSAGE} is the most"),
    )
}

/// Where the frame that `bytes` begin ends, once its header is there.
fn frame_end(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let (magic, rest) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(not_a_message(bytes[0]));
    }
    if rest[0] != VERSION {
        return Err(Error::new(
            Kind::Malformed,
            format!(
                "a mount message of version {}, and this sidecar knows version {VERSION}: use a node driver and a sidecar of one release",
                rest[0]
            ),
        ));
    }
    let length = u32::from_be_bytes([rest[1], rest[2], rest[3], rest[4]]) as usize;
    if length > MAX_MESSAGE {
        return Err(too_long(length));
    }
    Ok(Some(HEADER + length))
}

fn not_a_message(first: u8) -> Error {
    Error::new(
        Kind::Malformed,
        format!(
            "what came with the descriptor begins with byte {first:#04x}, which begins no mount message"
        ),
    )
}

/// Finds the end of a JSON object without parsing it again for each piece of it.
#[derive(Default)]
struct Object {
    depth: usize,
    in_string: bool,
    escaped: bool,
    end: Option<usize>,
}

impl Object {
    fn scan(&mut self, bytes: &[u8], begin: usize) -> Result<(), Error> {
        for (at, &byte) in bytes.iter().enumerate().skip(begin) {
            if self.end.is_some() {
                break;
            }
            self.step(at, byte)?;
        }
        Ok(())
    }

    fn step(&mut self, at: usize, byte: u8) -> Result<(), Error> {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'{' => self.depth += 1,
            _ if self.depth == 0 && byte.is_ascii_whitespace() => {}
            _ if self.depth == 0 => return Err(not_a_message(byte)),
            b'[' => self.depth += 1,
            b'"' => self.in_string = true,
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.end = Some(at + 1);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::handoff::Form;

    fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Vec<u8>>, Error> {
        let mut incoming = Incoming::default();
        for piece in pieces {
            incoming.push(piece)?;
            if let Some(json) = incoming.json()? {
                return Ok(Some(json.to_vec()));
            }
        }
        Ok(None)
    }

    #[test]
    fn an_object_ends_with_its_own_brace_and_not_with_one_in_a_text() {
        for json in [
            r#"{"a":"}"}"#,
            r#"{"a":"\"}","b":[{}]}"#,
            r#"{"a":"\\"}"#,
            r#" {"a":["{","]"]}"#,
        ] {
            assert_eq!(feed([json.as_bytes()]).unwrap().unwrap(), json.as_bytes());
            assert_eq!(
                feed(json.as_bytes().chunks(1)).unwrap().unwrap(),
                json.as_bytes()
            );
            let short = &json.as_bytes()[..json.len() - 1];
            assert_eq!(feed([short]).unwrap(), None, "{json}");
        }
    }

    #[test]
    fn what_begins_no_message_is_told_by_its_first_byte() {
        for bytes in [
            &b"hello"[..],
            b"\x00",
            b"\xf5GMX\x01\0\0\0\x02{}",
            b"}",
            b"[\"v\",\"b\",[]]",
        ] {
            let error = feed([bytes]).unwrap_err();
            assert_eq!(error.kind(), Kind::Malformed);
            let first = format!("{:#04x}", bytes[0]);
            assert!(error.to_string().contains(&first), "{error}");
        }
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        for bytes in [&b"{}{}"[..], b"{} x", b"\xf5GMF\x01\0\0\0\x02{}}"] {
            assert_eq!(feed([bytes]).unwrap_err().kind(), Kind::Malformed);
        }
        assert_eq!(feed([&b"{}\n"[..]]).unwrap().unwrap(), b"{}");
    }

    #[test]
    fn a_frame_of_a_later_version_or_beyond_the_limit_is_refused_at_its_header() {
        let later = feed([&b"\xf5GMF\x02\0\0\0\x02{}"[..]]).unwrap_err();
        assert_eq!(later.kind(), Kind::Malformed);
        assert!(later.to_string().contains("version 2"), "{later}");
        let long = feed([&b"\xf5GMF\x01\x00\x10\x00\x01"[..]]).unwrap_err();
        assert_eq!(long.kind(), Kind::TooLong);
        assert_eq!(feed([&b"\xf5GMF\x01\x00\x10\x00\x00"[..]]).unwrap(), None);
    }

    #[test]
    fn a_stock_message_without_an_end_is_given_up_at_the_limit() {
        let mut incoming = Incoming::default();
        incoming.push(b"{\"").unwrap();
        let piece = [b'x'; PIECE];
        let error = std::iter::repeat_with(|| incoming.push(&piece))
            .take(2 * MAX_MESSAGE / PIECE)
            .find_map(Result::err)
            .unwrap();
        assert_eq!(error.kind(), Kind::TooLong);
        assert!(incoming.bytes.len() <= MAX_MESSAGE + PIECE);
    }

    proptest! {
        #[test]
        fn a_message_survives_any_cutting(
            bucket in "[a-z_\\\\\"{}é]{1,20}",
            options in prop::collection::vec(".{0,40}", 0..20),
            framed: bool,
            size in 1usize..50,
        ) {
            let message = MountMessage { volume_name: None, bucket_name: bucket, options };
            let form = if framed { Form::Framed } else { Form::Stock };
            let bytes = message.encode(form).unwrap();
            let json = feed(bytes.chunks(size)).unwrap().unwrap();
            prop_assert_eq!(MountMessage::decode(&json).unwrap(), message);
        }

        #[test]
        fn no_bytes_make_the_receiver_panic(
            begin in prop_oneof![Just(&b""[..]), Just(&b"{"[..]), Just(&b"\xf5GMF\x01\0"[..])],
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            size in 1usize..50,
        ) {
            let bytes = [begin, &bytes].concat();
            if let Ok(Some(json)) = feed(bytes.chunks(size)) {
                let _ = MountMessage::decode(&json);
            }
        }
    }
}
