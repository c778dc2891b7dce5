//! The hand-off: one message with one descriptor over a unix stream socket. The driver listens and sends, the sidecar
//! dials and receives; nothing is answered.
//!
//! The stock form is bare JSON in one piece, and a stock sidecar reads no more than [`MAX_STOCK`] bytes of it. For
//! longer messages there is a form of ours, which a receiver tells apart by its first byte:
//!
//! ```text
//! f5 47 4d 46   01        LL LL LL LL            {"bucketName":…
//! magic         version   length, big-endian     as many bytes of JSON
//! ```

mod incoming;

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use serde::{Deserialize, Deserializer, Serialize};

pub use incoming::{Receiving, late, receive};

use crate::{Error, Kind};

/// The longest message in the stock form, in bytes: what a stock sidecar reads, in one piece.
pub const MAX_STOCK: usize = 5000;
/// The longest JSON in any form, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// How a framed message begins. Its first byte begins no JSON and no UTF-8 text.
const MAGIC: [u8; 4] = [0xf5, b'G', b'M', b'F'];
const VERSION: u8 = 1;
/// Magic, version and length.
const HEADER: usize = MAGIC.len() + 1 + size_of::<u32>();

/// What is said with the descriptor. Fields that are not known are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountMessage {
    /// The volume's name, where the directory does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// The bucket, or `_` for every bucket that the identity can see. Never empty.
    pub bucket_name: String,
    /// The mount options, for [`crate::options`].
    #[serde(
        default,
        deserialize_with = "list_or_null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub options: Vec<String>,
}

/// Go writes `null` for a list that was never made.
fn list_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// How a message is put into bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// JSON in one message, which every sidecar understands, up to [`MAX_STOCK`].
    Stock,
    /// Ours: a header with the length, then JSON up to [`MAX_MESSAGE`].
    Framed,
}

impl MountMessage {
    /// The bytes of this message in `form`.
    ///
    /// # Errors
    /// [`Kind::TooLong`] for the form, [`Kind::Malformed`] without a bucket.
    pub fn encode(&self, form: Form) -> Result<Vec<u8>, Error> {
        if self.bucket_name.is_empty() {
            return Err(no_bucket());
        }
        let json = serde_json::to_vec(self).expect("text and lists of text always are JSON");
        match form {
            Form::Stock if json.len() > MAX_STOCK => Err(Error::new(
                Kind::TooLong,
                format!(
                    "the mount options make a message of {} bytes, and a stock sidecar reads {MAX_STOCK}: \
                     give the volume fewer or shorter mount options, or use our sidecar's own form",
                    json.len()
                ),
            )),
            Form::Framed if json.len() > MAX_MESSAGE => Err(Error::new(
                Kind::TooLong,
                format!(
                    "the mount options make a message of {} bytes, more than the {MAX_MESSAGE} that can be handed over",
                    json.len()
                ),
            )),
            Form::Stock => Ok(json),
            Form::Framed => Ok(frame(&json)),
        }
    }

    fn decode(json: &[u8]) -> Result<Self, Error> {
        // serde_json's own sentence may repeat what it read; place and category say enough.
        let message: Self = serde_json::from_slice(json).map_err(|error| {
            Error::new(
                Kind::Malformed,
                format!(
                    "the message that came with the descriptor is not a mount message: {:?} error of JSON at byte {} of {}",
                    error.classify(),
                    error.column(),
                    json.len()
                ),
            )
        })?;
        if message.bucket_name.is_empty() {
            return Err(no_bucket());
        }
        Ok(message)
    }
}

fn no_bucket() -> Error {
    Error::new(
        Kind::Malformed,
        "the mount message names no bucket in bucketName: set bucketName or the volume handle of the volume",
    )
}

fn frame(json: &[u8]) -> Vec<u8> {
    let length = u32::try_from(json.len()).expect("the longest message fits");
    [&MAGIC[..], &[VERSION], &length.to_be_bytes(), json].concat()
}

/// Sends `message` with a copy of `fuse`, in one message of the socket unless its buffer is too small. Blocks as long
/// as the socket's `SO_SNDTIMEO` lets it.
///
/// # Errors
/// The message cannot be encoded, the receiver did not take it in time ([`Kind::Late`]), or the socket failed.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &MountMessage,
    fuse: BorrowedFd<'_>,
    form: Form,
) -> Result<(), Error> {
    let bytes = message.encode(form)?;
    let descriptors = [fuse.as_raw_fd()];
    let mut sent = send_piece(socket, &bytes, &[ControlMessage::ScmRights(&descriptors)])?;
    while sent < bytes.len() {
        sent += send_piece(socket, &bytes[sent..], &[])?;
    }
    Ok(())
}

fn send_piece(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    control: &[ControlMessage<'_>],
) -> Result<usize, Error> {
    let pieces = [IoSlice::new(bytes)];
    loop {
        let sent = sendmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &pieces,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        match sent {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                return Err(Error::new(
                    Kind::Late,
                    "the sidecar did not take the mount message in time",
                ));
            }
            Err(errno) => return Err(Error::io("hand the descriptor over", errno)),
            Ok(sent) => return Ok(sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> MountMessage {
        MountMessage {
            volume_name: None,
            bucket_name: "bucket-a".into(),
            options: vec!["implicit-dirs".into(), "uid=1000".into()],
        }
    }

    const JSON: &[u8] = br#"{"bucketName":"bucket-a","options":["implicit-dirs","uid=1000"]}"#;

    #[test]
    fn the_stock_form_is_the_bytes_of_section_2_5_of_the_hand_off() {
        assert_eq!(message().encode(Form::Stock).unwrap(), JSON);
        let named = MountMessage {
            volume_name: Some("pv-1".into()),
            options: Vec::new(),
            ..message()
        };
        assert_eq!(
            named.encode(Form::Stock).unwrap(),
            br#"{"volumeName":"pv-1","bucketName":"bucket-a"}"#
        );
    }

    #[test]
    fn the_framed_form_is_magic_version_length_and_the_same_json() {
        let framed = message().encode(Form::Framed).unwrap();
        assert_eq!(framed[..HEADER], *b"\xf5GMF\x01\x00\x00\x00\x40");
        assert_eq!(framed[HEADER..], *JSON);
    }

    #[test]
    fn a_message_of_5000_bytes_is_sent_in_the_stock_form_and_one_more_is_refused() {
        let mut message = message();
        let spare = MAX_STOCK - JSON.len();
        message.options[0].push_str(&"x".repeat(spare));
        assert_eq!(message.encode(Form::Stock).unwrap().len(), 5000);
        message.options[0].push('x');
        let error = message.encode(Form::Stock).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLong);
        assert!(error.to_string().contains("5001 bytes"), "{error}");
        assert!(message.encode(Form::Framed).is_ok());
        message.options[0].push_str(&"x".repeat(MAX_MESSAGE));
        let error = message.encode(Form::Framed).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLong);
    }

    #[test]
    fn unknown_fields_and_lists_that_are_null_or_absent_are_taken() {
        for json in [
            r#"{"bucketName":"b"}"#,
            r#"{"bucketName":"b","options":null}"#,
            r#"{ "later":{"x":[1]},"options":[], "bucketName" : "b" }"#,
        ] {
            let message = MountMessage::decode(json.as_bytes()).unwrap();
            assert_eq!(
                (message.bucket_name.as_str(), message.options.len()),
                ("b", 0)
            );
        }
    }

    #[test]
    fn a_message_without_a_bucket_or_of_another_shape_is_refused() {
        for json in [
            r#"{}"#,
            r#"{"bucketName":""}"#,
            r#"{"bucketName":7}"#,
            r#"{"bucketName":"b","options":"uid=1"}"#,
            r#"{"bucketName":"b""#,
        ] {
            let error = MountMessage::decode(json.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), Kind::Malformed, "{json}");
            assert!(!error.to_string().contains("uid"), "{error}");
        }
        let nameless = MountMessage {
            bucket_name: String::new(),
            ..message()
        };
        assert!(nameless.encode(Form::Stock).is_err());
    }
}
