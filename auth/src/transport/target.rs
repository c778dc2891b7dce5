//! The addresses of servers: absolute `http` and `https` URLs, read once and kept.

use std::net::IpAddr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::error::{Error, Kind};

/// Reads an absolute `https` or `http` URL; without a path it gets `path`. The error begins with
/// `setting` and ends with `example`. The URL is not repeated: one with a password in it is among
/// those refused.
pub(crate) fn parse(
    url: &str,
    setting: &str,
    example: &str,
    path: &'static str,
) -> Result<Uri, Error> {
    let refuse = |reason: &str| {
        let message = format!("{setting} {reason}; it takes a URL such as {example}");
        Error::new(Kind::Config, message)
    };
    let mut parts = url
        .parse::<Uri>()
        .map_err(|_| refuse("is not a URL"))?
        .into_parts();
    match parts.scheme.as_ref().map(Scheme::as_str) {
        Some("https" | "http") => {}
        _ => return Err(refuse("does not begin with https:// or http://")),
    }
    match &parts.authority {
        Some(authority) if authority.as_str().contains('@') => {
            return Err(refuse("has a user name in it"));
        }
        Some(authority) if authority.host().is_empty() => return Err(refuse("names no host")),
        Some(authority) if has_sound_port(authority) => {}
        Some(_) => return Err(refuse("has a port that is not a number from 1 to 65535")),
        None => return Err(refuse("names no host")),
    }
    if parts
        .path_and_query
        .as_ref()
        .is_none_or(|given| given.as_str() == "/")
    {
        parts.path_and_query = Some(PathAndQuery::from_static(path));
    }
    Uri::from_parts(parts).map_err(|_| refuse("is not a URL"))
}

/// Whether what follows the host is nothing or a port. [`Authority::port`] has none where it is not
/// a number or too large a one, and who connects then takes that of the scheme, at which somebody
/// else may listen.
pub(super) fn has_sound_port(authority: &Authority) -> bool {
    let text = authority.as_str();
    let place = text.rsplit_once('@').map_or(text, |(_, place)| place);
    match place.strip_prefix(authority.host()) {
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').is_some_and(is_port),
        None => false,
    }
}

/// Digits alone: a sign before them is read as a number too.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok_and(|port| port != 0)
}

/// A URL for people: without the query, which may hold a key.
pub(crate) fn shown(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", Authority::as_str);
    format!("{scheme}://{authority}{}", uri.path())
}

/// What may be a key in the query of a URL: the values in it.
pub(crate) fn secrets(query: Option<&str>) -> Vec<&str> {
    query
        .unwrap_or_default()
        .split('&')
        .filter_map(|field| field.split_once('='))
        .map(|(_, value)| value)
        .collect()
}

/// The host alone, without the brackets of an IPv6 address.
pub(crate) fn host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a secret sent there crosses a network that others may read.
pub(crate) fn is_cleartext(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTP) && !is_loopback(uri)
}

/// Whether the server is on this machine.
pub(crate) fn is_loopback(uri: &Uri) -> bool {
    let host = host(uri);
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_none_is_refused_and_not_replaced_by_another() {
        let parsed = |url: &str| parse(url, "--url", "http://h:1", "/");
        for host in ["127.0.0.1", "sts.example", "[::1]"] {
            for scheme in ["http", "https"] {
                for port in ["", ":1", ":80", ":8080", ":65535", ":00080"] {
                    let url = format!("{scheme}://{host}{port}/path");
                    assert!(parsed(&url).is_ok(), "{url}");
                }
                for port in [
                    ":", ":0", ":65536", ":80800", ":99999", ":abc", ":-1", ":+80", ":8o", ":80:80",
                ] {
                    for path in ["", "/path", "?query"] {
                        let url = format!("{scheme}://{host}{port}{path}");
                        let error = parsed(&url).unwrap_err();
                        assert_eq!(error.kind(), Kind::Config, "{url}");
                        assert!(error.message().starts_with("--url "), "{error}");
                    }
                }
            }
        }
        let error = parsed("http://127.0.0.1:80800").unwrap_err();
        assert!(error.message().contains("from 1 to 65535"), "{error}");
    }
}
