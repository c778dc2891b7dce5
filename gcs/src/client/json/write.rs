//! An object in one request.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderValue, Method, header};

use super::call::Call;
use super::client::Client;
use super::operation::Operation;
use super::payload::Payload;
use super::resolve::Sent;
use super::resource::{self, Insert, parse_object};
use crate::store::WriteRequest;
use crate::{Error, Kind, Object, Result};

/// What errors about the making of an object name.
pub(super) const OPERATION: &str = "storage.objects.insert";

impl Client {
    /// Publishes `body`, whose CRC32C the store checks before it does.
    ///
    /// Source of the form: <https://cloud.google.com/storage/docs/uploading-objects#rest-upload-objects>, multipart.
    pub(super) async fn insert(
        &self,
        request: &WriteRequest,
        body: &Payload,
        crc32c: u32,
    ) -> Result<Object> {
        let boundary = format!("{:016x}{:016x}", self.noise.next(), self.noise.next());
        let insert = Insert::new(Some(&request.name), &request.attributes, Some(crc32c));
        let url = self
            .urls
            .upload("multipart")
            .conditions(&request.preconditions);
        let mut call = Call::new(Operation::Insert, request.name.as_str(), Method::POST, url)?
            .header(header::CONTENT_TYPE, content_type(&boundary))
            .under(&request.preconditions);
        (call.payload, call.content) = multipart(&boundary, &resource::json(&insert), body);

        let sent = Sent {
            name: &request.name,
            base: request.preconditions.generation,
            size: body.len(),
            crc32c,
            attributes: &request.attributes,
        };
        match self.run(&call).await {
            Ok(answer) => {
                let object = parse_object(answer.bytes()).map_err(|part| call.malformed(part))?;
                check(object, &sent)
            }
            Err(failed) => self.resolve_sent(failed, &sent).await,
        }
    }
}

/// Refuses an answer that is about other bytes than those that were sent.
pub(super) fn check(object: Object, sent: &Sent<'_>) -> Result<Object> {
    let same = object.size == sent.size && object.crc32c.is_none_or(|crc| crc == sent.crc32c);
    if same {
        return Ok(object);
    }
    let message = "the store holds other bytes than those that were sent";
    Err(Error::new(Kind::Corrupt, OPERATION, sent.name, message))
}

fn content_type(boundary: &str) -> HeaderValue {
    #[expect(clippy::expect_used, reason = "hexadecimal digits and ASCII")]
    HeaderValue::try_from(format!("multipart/related; boundary={boundary}"))
        .expect("a boundary is a header value")
}

/// Metadata and bytes around a boundary of 128 random bits, which no body holds. The part's own content type is that
/// of an object without one; the metadata's wins. The range is where the bytes are.
fn multipart(boundary: &str, metadata: &[u8], body: &Payload) -> (Payload, Range<u64>) {
    let mut head = Vec::with_capacity(metadata.len() + 192);
    for part in [
        b"--",
        boundary.as_bytes(),
        b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n",
        metadata,
        b"\r\n--",
        boundary.as_bytes(),
        b"\r\nContent-Type: application/octet-stream\r\n\r\n",
    ] {
        head.extend_from_slice(part);
    }
    let mut payload = Payload::from(Bytes::from(head));
    let first = payload.len();
    payload.append(body);
    let content = first..payload.len();
    payload.push(format!("\r\n--{boundary}--\r\n").into());
    (payload, content)
}
