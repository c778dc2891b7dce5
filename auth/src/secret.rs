//! Bytes that nobody may see: no `Display`, a `Debug` that shows nothing, and memory that is zeroed
//! when the last owner lets go. What the HTTP stack copies into its own buffers is out of reach;
//! every buffer that is ours is one of these.

use std::fmt;

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::error::{Error, Kind};

/// What stands before a token in an `authorization` header (RFC 6750 section 2.1).
pub(crate) const SCHEME: &str = "Bearer ";

/// What `Debug` prints in place of a secret.
const HIDDEN: &str = "[secret]";

/// A subject token: the JWT that says who this process is, as the [source](crate::source) delivered
/// it, trimmed.
pub struct SubjectToken(Zeroizing<String>);

impl SubjectToken {
    /// Takes the token out of `text`, without the white space around it; `None` if nothing else is
    /// there. `text` is zeroed.
    #[must_use]
    pub fn new(text: String) -> Option<Self> {
        let text = Zeroizing::new(text);
        let token = text.trim();
        (!token.is_empty()).then(|| Self(Zeroizing::new(token.to_owned())))
    }

    /// Another copy, for whoever keeps a token and has to hand it out.
    pub(crate) fn copy(&self) -> Self {
        Self(self.0.clone())
    }

    /// The token itself. Only for the request that it was made for.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SubjectToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The text of an access token, as an issuer returned it.
#[derive(Deserialize)]
#[serde(from = "String")]
pub struct AccessSecret(Zeroizing<String>);

impl From<String> for AccessSecret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl AccessSecret {
    /// Takes over `text`, whose memory is zeroed in the end.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The token itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AccessSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The value of an `authorization` header with this token, marked sensitive.
pub(crate) fn bearer(token: &AccessSecret) -> Result<HeaderValue, Error> {
    let text = token.expose();
    let mut value = Zeroizing::new(Vec::with_capacity(SCHEME.len() + text.len()));
    value.extend_from_slice(SCHEME.as_bytes());
    value.extend_from_slice(text.as_bytes());
    let value = zeroed_on_drop(std::mem::take(&mut *value));
    let unusable = || {
        Error::new(
            Kind::BadAnswer,
            "the access token given holds characters that no token has",
        )
    };
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable());
    }
    let mut header = HeaderValue::from_maybe_shared(value).map_err(|_| unusable())?;
    header.set_sensitive(true);
    Ok(header)
}

/// Shared bytes whose memory is zeroed when the last clone is dropped, for interfaces that take
/// [`Bytes`].
pub(crate) fn zeroed_on_drop(secret: Vec<u8>) -> Bytes {
    Bytes::from_owner(Zeroizing::new(secret))
}

/// Text from outside, made fit for a message: every piece of `secret` is taken out, so is anything
/// else that looks like a token or a key, control characters are escaped and the length is bounded.
pub(crate) fn quotable(text: &str, secret: &str) -> String {
    const LONGEST: usize = 400;
    let shown = without_pieces(text, secret);
    let shown = without_long_runs(&without_marked(&shown));
    let mut quoted: String = shown.trim().escape_debug().take(LONGEST).collect();
    // `escape_debug` is for literals; quotes need no escape in a sentence.
    quoted = quoted.replace("\\\"", "\"").replace("\\'", "'");
    if shown.len() > LONGEST {
        quoted.push('…');
    }
    quoted
}

/// The shortest piece of a secret that is one. What is shorter is in every text.
const PIECE: usize = 8;

/// Replaces what the text has in common with `secret`, wherever that begins and ends in it: servers
/// cut what they quote.
fn without_pieces(text: &str, secret: &str) -> String {
    let mut pieces: Zeroizing<Vec<[u8; PIECE]>> = Zeroizing::new(pieces(secret).collect());
    pieces.sort_unstable();
    let mut shown = String::with_capacity(text.len());
    // What is still to be shown begins at `from`, what is hidden ends at `until`.
    let (mut from, mut until) = (0, 0);
    for (at, piece) in self::pieces(text).enumerate() {
        if pieces.binary_search(&piece).is_err() {
            continue;
        }
        // Half a character is hidden whole.
        let begin = text.floor_char_boundary(at);
        if begin > until || until == 0 {
            shown.push_str(&text[from..begin]);
            shown.push_str(HIDDEN);
        }
        until = text.ceil_char_boundary(at + PIECE);
        from = until;
    }
    shown.push_str(&text[from..]);
    shown
}

fn pieces(text: &str) -> impl Iterator<Item = [u8; PIECE]> {
    let windows = text.as_bytes().windows(PIECE);
    windows.filter_map(|piece| piece.try_into().ok())
}

/// How the secrets of Google's services and JWTs begin: access tokens, refresh tokens, client
/// secrets, keys of APIs, the encoding of `{"`.
const MARKS: [&str; 5] = ["ya29.", "1//", "GOCSPX-", "AIza", "eyJ"];

/// Replaces what begins like a secret, however short it is.
fn without_marked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match begins_word(&text[..text.len() - rest.len()]) {
            true => marked(rest),
            false => None,
        };
        if length.is_some() {
            shown.push_str(HIDDEN);
        } else {
            shown.push(next);
        }
        rest = &rest[length.unwrap_or(next.len_utf8())..];
    }
    shown
}

/// The length of the secret that `text` begins with.
fn marked(text: &str) -> Option<usize> {
    // Less behind its mark is a sentence about secrets.
    const LEAST: usize = 4;
    let mark = MARKS.iter().find(|mark| text.starts_with(**mark))?;
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "-_./+=~%".contains(c);
    let end = text.find(|c| !is_of_token(c)).unwrap_or(text.len());
    let length = text[..end].trim_end_matches('.').len();
    (length >= mark.len() + LEAST).then_some(length)
}

/// Whether a word may begin after this: not within another, but after an escaped byte of a URL.
fn begins_word(before: &str) -> bool {
    let before = before.as_bytes();
    match before {
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [.., last] => !last.is_ascii_alphanumeric(),
        [] => true,
    }
}

/// Replaces each run of more than 40 base64url characters. Names of pools and providers end at 32,
/// a UUID is 36 long; tokens and signatures are longer.
fn without_long_runs(text: &str) -> String {
    const LONGEST_NAME: usize = 40;
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.split_inclusive(|c| !is_token_char(c))
        .map(|piece| {
            let run = piece.trim_end_matches(|c| !is_token_char(c));
            match run.len() > LONGEST_NAME {
                true => format!("{HIDDEN}{}", &piece[run.len()..]),
                false => piece.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        let subject = SubjectToken::new(" aaa.bbb.ccc\n".into()).unwrap();
        assert_eq!(subject.expose(), "aaa.bbb.ccc");
        assert_eq!(
            format!("{subject:?} {:?}", AccessSecret::new("ya29".into())),
            "[secret] [secret]"
        );
    }

    #[test]
    fn white_space_is_no_token() {
        assert!(SubjectToken::new(" \n\t".into()).is_none());
    }

    #[test]
    fn an_echoed_token_is_taken_out_in_whole_and_in_pieces() {
        let secret = "headerheader.payloadpayload.signature";
        let echo = quotable(
            "bad token headerheader.payloadpayload.signature or just signature",
            secret,
        );
        assert!(
            secret.split('.').all(|piece| !echo.contains(piece)),
            "{echo}"
        );
    }

    #[test]
    fn any_piece_of_a_secret_is_taken_out_and_what_stands_around_it_is_not() {
        let secret = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ.second-one";
        for (text, told) in [
            (
                "got abcdefghijklmnopqrstuvwxyz0123456789ABCD…",
                "got [secret]…",
            ),
            ("got hijklmno, no", "got [secret], no"),
            ("hijklmno and cdefghij", "[secret] and [secret]"),
            ("<<hijklmnocdefghij>>", "<<[secret]>>"),
            ("xxxabcdefghxxxsecond-oyyy", "xxx[secret]xxx[secret]yyy"),
            ("ends in second-one", "ends in [secret]"),
            ("second-one", "[secret]"),
            ("got hijklmn", "got hijklmn"),
            ("", ""),
        ] {
            assert_eq!(quotable(text, secret), told, "{text}");
        }
        let umlauts = quotable("xöäüöäx", "äüöäü");
        assert_eq!(umlauts, "xö[secret]x");
    }

    #[test]
    fn what_begins_like_a_secret_is_taken_out_however_short_it_is() {
        for (text, told) in [
            (
                "Bearer ya29.a0AfH6SMBxxxxxxxxxx is bad",
                "Bearer [secret] is bad",
            ),
            ("Bearer%20ya29.a0Af&x", "Bearer%20[secret]&x"),
            ("(1//0gAbC-dE_f/x).", "([secret])."),
            ("client_secret=GOCSPX-abcd.", "client_secret=[secret]."),
            ("key AIzaSyAbCdEfGh", "key [secret]"),
            ("\"eyJhbGciOi.eyJpc3M.c2ln\"", "\"[secret]\""),
            ("ya29.abcd ya29.efgh", "[secret] [secret]"),
            // No secrets.
            (
                "a keyJson, no ya29. and no 1//",
                "a keyJson, no ya29. and no 1//",
            ),
            ("https://h1//abcd", "https://h1//abcd"),
        ] {
            assert_eq!(quotable(text, ""), told, "{text}");
        }
    }

    #[test]
    fn anything_that_looks_like_a_token_is_taken_out() {
        let text = format!(
            "got {}, want //iam.googleapis.com/projects/1/x",
            "A".repeat(41)
        );
        assert_eq!(
            quotable(&text, ""),
            "got [secret], want //iam.googleapis.com/projects/1/x"
        );
    }

    #[test]
    fn control_characters_are_escaped_and_length_is_bounded() {
        assert_eq!(
            quotable("a\nb\u{1b}[31m \"q\"", ""),
            "a\\nb\\u{1b}[31m \"q\""
        );
        assert!(quotable(&"ab ".repeat(1000), "").chars().count() <= 401);
    }
}
