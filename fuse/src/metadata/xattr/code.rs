//! How names and values of extended attributes are written as custom metadata.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

const PLAIN_KEY: &str = "gcsmount-xattr-";
const HEX_KEY: &str = "gcsmount-xattrhex-";
const ENCODED_VALUE: &str = "base64url:";

/// The key of a name.
pub(super) fn key(name: &[u8]) -> String {
    let plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    match std::str::from_utf8(name) {
        Ok(text) if name.iter().all(plain) => format!("{PLAIN_KEY}{text}"),
        Ok(_) | Err(_) => name.iter().fold(HEX_KEY.to_owned(), |mut key, byte| {
            let _ = write!(key, "{byte:02x}");
            key
        }),
    }
}

/// The name whose key it is. `None` for other keys, and for what another program has written in the form of ours.
pub(super) fn read_key(text: &str) -> Option<Vec<u8>> {
    let name = match (text.strip_prefix(PLAIN_KEY), text.strip_prefix(HEX_KEY)) {
        (Some(name), _) => name.as_bytes().to_vec(),
        (None, Some(digits)) => unhex(digits)?,
        (None, None) => return None,
    };
    // Exactly what it would be written as, so that what is listed can be got.
    (!name.is_empty() && key(&name) == text).then_some(name)
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// Whether a header carries it as it is.
pub(super) fn is_plain(value: &[u8]) -> bool {
    let printable = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let trimmed = value.starts_with(b" ") || value.ends_with(b" ");
    printable && !trimmed
}

/// A value as it is kept.
pub(super) fn value(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if is_plain(value) && !text.is_empty() && !text.starts_with(ENCODED_VALUE) => {
            text.to_owned()
        }
        Ok(_) | Err(_) => format!("{ENCODED_VALUE}{}", URL_SAFE_NO_PAD.encode(value)),
    }
}

/// What was kept. `None` for what is damaged.
pub(super) fn read_value(kept: &str) -> Option<Vec<u8>> {
    match kept.strip_prefix(ENCODED_VALUE) {
        Some(encoded) => URL_SAFE_NO_PAD.decode(encoded).ok(),
        None => Some(kept.as_bytes().to_vec()),
    }
}

/// Checksums as the service writes them.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
