//! Which way leads to a server: straight, or through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or
//! `ALL_PROXY` names and `NO_PROXY` does not except (in lower case too, with the meaning they have for
//! curl and for Go). Pure. User names and passwords in their URLs are secrets: they go to the proxy and
//! appear nowhere.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::uri::Scheme;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::target;
use crate::error::{Error, Kind};

/// What an operator would look at.
pub(super) const VARIABLES: &str = "HTTPS_PROXY, HTTP_PROXY and ALL_PROXY";

/// The name of a metadata server, and its address where there is no IPv4; the usual one is link-local.
const METADATA_NAME: &str = "metadata.google.internal";
const METADATA_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254);

/// The way to one server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Straight.
    Direct,
    /// Through a proxy.
    Through(Proxy),
}

/// A proxy, and how it is made use of.
#[derive(PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) uri: Uri,
    pub(super) means: Means,
}

/// What a proxy is asked for. Holds its password, and so is not shown.
#[derive(PartialEq, Eq)]
pub(super) enum Means {
    /// The whole URL: for plain HTTP.
    Forward(Option<HeaderValue>),
    /// A tunnel to a host.
    Tunnel(Option<HeaderValue>),
    /// SOCKS 5 (RFC 1928), the name resolved by the proxy.
    Socks(Option<(String, String)>),
}

impl Route {
    /// The way to the server at `target`. What is on this machine and what tells a machine who it is
    /// are never reached through a proxy, whose own `localhost` and identity those would be.
    pub(super) fn of(matcher: &Matcher, target: &Uri) -> Result<Self, Error> {
        if target::is_loopback(target) || is_metadata(target) {
            return Ok(Self::Direct);
        }
        match matcher.intercept(target) {
            Some(proxy) => through(&proxy, target).map(Self::Through),
            None => Ok(Self::Direct),
        }
    }

    /// Whether TLS is spoken on the way to the server at `target`: with it, or with the proxy.
    pub(super) fn is_secure(&self, target: &Uri) -> bool {
        let proxied = matches!(self, Self::Through(proxy) if proxy.is_secure());
        proxied || target.scheme() == Some(&Scheme::HTTPS)
    }

    /// The proxy that is asked for whole URLs, and what a request must carry to pass it.
    pub(super) fn forward(&self) -> Option<(&Proxy, Option<&HeaderValue>)> {
        match self {
            Self::Through(proxy) => match &proxy.means {
                Means::Forward(authorization) => Some((proxy, authorization.as_ref())),
                Means::Tunnel(_) | Means::Socks(_) => None,
            },
            Self::Direct => None,
        }
    }
}

impl Proxy {
    pub(super) fn is_secure(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }
}

impl fmt::Display for Proxy {
    /// Host and port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(shown(&self.uri))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Host and port, whatever else found its way into the authority.
fn shown(proxy: &Uri) -> &str {
    let authority = proxy.authority().map_or("", http::uri::Authority::as_str);
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, place)| place)
}

fn through(proxy: &Intercept, target: &Uri) -> Result<Proxy, Error> {
    let uri = proxy.uri().clone();
    if !uri.authority().is_some_and(target::has_sound_port) {
        let message = format!(
            "the proxy {} has a port that is not a number from 1 to 65535; check {VARIABLES}",
            shown(&uri)
        );
        return Err(Error::new(Kind::Config, message));
    }
    let basic = || proxy.basic_auth().cloned();
    let means = match uri.scheme_str() {
        Some("http" | "https") if target.scheme() == Some(&Scheme::HTTPS) => Means::Tunnel(basic()),
        Some("http" | "https") => Means::Forward(basic()),
        Some("socks5" | "socks5h") => {
            let user = proxy.raw_auth();
            Means::Socks(user.map(|(name, password)| (name.to_owned(), password.to_owned())))
        }
        _ => {
            let message = format!(
                "the proxy {} is of a kind that is not spoken here; {VARIABLES} take a URL that \
                 begins with http://, https://, socks5:// or socks5h://",
                shown(&uri)
            );
            return Err(Error::new(Kind::Config, message));
        }
    };
    Ok(Proxy { uri, means })
}

/// Whether the server is one that tells a machine, or a pod on it, who it is.
fn is_metadata(uri: &Uri) -> bool {
    let host = target::host(uri);
    match host.parse().map(|ip: IpAddr| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_unicast_link_local() || ip == METADATA_IPV6,
        Err(_) => host
            .trim_end_matches('.')
            .eq_ignore_ascii_case(METADATA_NAME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(https: &str, http: &str, all: &str, no: &str) -> Matcher {
        let matcher = Matcher::builder().https(https).http(http).all(all).no(no);
        matcher.build()
    }

    fn route(matcher: &Matcher, target: &str) -> Route {
        Route::of(matcher, &target.parse().unwrap()).unwrap()
    }

    /// The route in one word and the proxy's place.
    fn told(route: &Route) -> String {
        match route {
            Route::Direct => "direct".to_owned(),
            Route::Through(proxy) => match &proxy.means {
                Means::Forward(_) => format!("forward {proxy}"),
                Means::Tunnel(_) => format!("tunnel {proxy}"),
                Means::Socks(_) => format!("socks {proxy}"),
            },
        }
    }

    #[test]
    fn the_variables_choose_the_way() {
        let both = matcher("http://p:1", "http://q:2", "", "plain.test,10.0.0.0/8");
        let all = matcher("", "", "socks5h://s:3", "");
        let nothing_through = matcher("https://p:1", "", "", "*");
        let none = matcher("", "", "", "");
        for (matcher, target, way) in [
            (&both, "https://sts.test", "tunnel p:1"),
            (&both, "http://sts.test", "forward q:2"),
            (&both, "http://a.plain.test:80", "direct"),
            (&both, "https://10.1.2.3", "direct"),
            (&all, "https://sts.test", "socks s:3"),
            (&all, "http://sts.test", "socks s:3"),
            (&nothing_through, "https://sts.test", "direct"),
            (&none, "https://sts.test", "direct"),
        ] {
            assert_eq!(told(&route(matcher, target)), way, "{target}");
        }
    }

    #[test]
    fn this_machine_and_what_says_who_it_is_are_asked_straight() {
        let all = matcher("", "", "http://p:1", "");
        for target in [
            "http://127.0.0.1:9000",
            "http://127.9.9.9",
            "http://LocalHost:1",
            "https://[::1]:1",
            "http://169.254.169.254/computeMetadata/v1/",
            "http://169.254.170.2",
            "http://[fe80::1]",
            "http://[::ffff:169.254.169.254]",
            "http://[fd20:ce::254]",
            "http://Metadata.Google.Internal",
            "http://metadata.google.internal.:80",
        ] {
            assert_eq!(route(&all, target), Route::Direct, "{target}");
        }
        for target in ["http://metadata.google.internal.test", "http://169.253.1.1"] {
            assert_eq!(told(&route(&all, target)), "forward p:1", "{target}");
        }
    }

    #[test]
    fn tls_is_needed_for_the_server_or_for_the_proxy() {
        let plain = matcher("http://p:1", "http://p:1", "", "");
        let secure = matcher("https://p:1", "https://p:1", "", "");
        let (http, https) = ("http://sts.test", "https://sts.test");
        for (matcher, target, needed) in [
            (&plain, http, false),
            (&plain, https, true),
            (&secure, http, true),
            (&secure, https, true),
        ] {
            let uri = target.parse().unwrap();
            assert_eq!(route(matcher, target).is_secure(&uri), needed, "{target}");
        }
    }

    #[test]
    fn passwords_go_to_the_proxy_and_are_not_shown() {
        let url = "http://u:s3cret@p:1";
        let proxies = matcher(url, url, "", "");
        let (plain, secure) = (
            route(&proxies, "http://sts.test"),
            route(&proxies, "https://sts.test"),
        );
        let (proxy, Some(basic)) = plain.forward().unwrap() else {
            panic!("a password")
        };
        assert_eq!(basic, "Basic dTpzM2NyZXQ=");
        assert!(basic.is_sensitive());
        assert_eq!(proxy.uri, "http://p:1/");
        assert!(secure.forward().is_none());
        let socks = matcher("", "", "socks5://u:s3cret@s:3", "");
        let socks = route(&socks, "http://sts.test");
        let user = Some(("u".to_owned(), "s3cret".to_owned()));
        let expected = Proxy {
            uri: "socks5://s:3/".parse().unwrap(),
            means: Means::Socks(user),
        };
        for route in [&plain, &secure, &socks] {
            let shown = format!("{route:?}");
            assert!(
                !shown.contains("cret") && !shown.contains("dTpz"),
                "{shown}"
            );
        }
        assert_eq!(socks, Route::Through(expected));
        assert_eq!(shown(&Uri::from_static("http://u:pw@p:1/")), "p:1");
    }

    #[test]
    fn a_proxy_with_a_port_that_is_none_is_refused_and_sent_no_password() {
        for place in ["p:99999", "p:abc", "p:"] {
            let proxies = matcher("", &format!("http://u:s3cret@{place}"), "", "");
            let target = "http://sts.test".parse().unwrap();
            let error = Route::of(&proxies, &target).unwrap_err();
            assert_eq!(error.kind(), Kind::Config);
            let text = error.to_string();
            assert!(text.contains(place) && text.contains(VARIABLES), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused_and_not_gone_around() {
        let old = matcher("", "", "socks4://u:s3cret@s:3", "");
        let target = "https://sts.test".parse().unwrap();
        let error = Route::of(&old, &target).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        let text = error.to_string();
        assert!(text.contains("s:3") && text.contains(VARIABLES), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
