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
        Some(authority) if !authority.host().is_empty() => {}
        _ => return Err(refuse("names no host")),
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
