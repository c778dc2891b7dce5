//! Which way a connection takes: straight, or through the proxy that the usual variables name.
//!
//! `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case, mean what they mean to curl and to Go.
//! User names and passwords in their URLs are secrets: they go to the proxy and appear nowhere.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, Uri, uri::Scheme};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// The variables that name a proxy.
const VARIABLES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// The proxies of this process.
#[derive(Clone)]
pub(super) struct Proxies(Option<Arc<Matcher>>);

/// The way to one host. Holds the proxy's password, and so is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// Straight.
    Direct,
    /// To the proxy, which is asked for the whole URL: for plain HTTP.
    Forward(Uri, Option<HeaderValue>),
    /// Through a tunnel that the proxy opens.
    Tunnel(Uri, Option<HeaderValue>),
    /// Through a SOCKS 5 proxy, which resolves names too.
    Socks(Uri, Option<(String, String)>),
    /// The variables name a kind of proxy that is not spoken here; going straight is not what they ask for.
    Unknown(Uri),
}

impl Proxies {
    /// What the environment says now. What names no proxy that anybody could understand is said aloud and ignored, as
    /// everywhere.
    pub(super) fn from_environment() -> Self {
        let mut any = false;
        for variable in VARIABLES {
            let value = std::env::var(variable).unwrap_or_default();
            any |= !value.is_empty();
            if !(value.is_empty() || is_proxy(&value)) {
                // Not the value: it may hold a password.
                tracing::warn!(
                    variable,
                    "its value is no URL of a proxy, such as http://HOST:PORT, and is ignored"
                );
            }
        }
        // Most processes have none, and then no request asks.
        Self(any.then(|| Arc::new(Matcher::from_env())))
    }

    /// None, whatever the environment says.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// The way to `target`. This machine itself is never reached through a proxy, as Go has it: nobody else's
    /// `localhost` is meant.
    pub(super) fn route(&self, target: &Uri) -> Route {
        let matcher = self.0.as_ref().filter(|_| !is_local(target));
        match matcher.and_then(|matcher| matcher.intercept(target)) {
            Some(proxy) => through(&proxy, target),
            None => Route::Direct,
        }
    }

    /// What a request for `target` must carry to pass the proxy that it is sent to.
    pub(super) fn authorization(&self, target: &Uri) -> Option<HeaderValue> {
        match self.route(target) {
            Route::Forward(_, authorization) => authorization,
            Route::Direct | Route::Tunnel(..) | Route::Socks(..) | Route::Unknown(_) => None,
        }
    }
}

/// Whether `value` names a proxy at all.
fn is_proxy(value: &str) -> bool {
    let anywhere = Uri::from_static("http://host.invalid");
    let matcher = Matcher::builder().all(value).build();
    matcher.intercept(&anywhere).is_some()
}

fn through(proxy: &Intercept, target: &Uri) -> Route {
    let uri = proxy.uri().clone();
    let basic = || proxy.basic_auth().cloned();
    match uri.scheme_str() {
        Some("http" | "https") if target.scheme() == Some(&Scheme::HTTPS) => {
            Route::Tunnel(uri, basic())
        }
        Some("http" | "https") => Route::Forward(uri, basic()),
        Some("socks5" | "socks5h") => {
            let user = proxy.raw_auth();
            let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
            Route::Socks(uri, user)
        }
        _ => Route::Unknown(uri),
    }
}

fn is_local(target: &Uri) -> bool {
    let host = target.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(https: &str, http: &str, all: &str, no: &str) -> Proxies {
        let matcher = Matcher::builder().https(https).http(http).all(all).no(no);
        Proxies(Some(Arc::new(matcher.build())))
    }

    /// The route in one word and the proxy's authority.
    fn told(route: &Route) -> (&'static str, String) {
        let authority = |uri: &Uri| {
            uri.authority()
                .map_or_else(String::new, ToString::to_string)
        };
        match route {
            Route::Direct => ("direct", String::new()),
            Route::Forward(uri, _) => ("forward", authority(uri)),
            Route::Tunnel(uri, _) => ("tunnel", authority(uri)),
            Route::Socks(uri, _) => ("socks", authority(uri)),
            Route::Unknown(uri) => ("unknown", authority(uri)),
        }
    }

    #[test]
    fn the_variables_choose_the_way() {
        let both = proxies("http://p:1", "http://q:2", "", "plain.test,10.0.0.0/8");
        let all = proxies("", "", "socks5h://s:3", "");
        let secure = proxies("https://p:1", "", "", "*");
        let old = proxies("", "", "socks4://s:3", "");
        let none = proxies("", "", "", "");
        for (proxies, target, way, through) in [
            (&both, "https://store.test", "tunnel", "p:1"),
            (&both, "http://store.test", "forward", "q:2"),
            (&both, "http://a.plain.test:80", "direct", ""),
            (&both, "https://10.1.2.3", "direct", ""),
            (&both, "http://127.0.0.1:9000", "direct", ""),
            (&both, "http://127.9.9.9", "direct", ""),
            (&both, "http://LocalHost:1", "direct", ""),
            (&both, "https://[::1]:1", "direct", ""),
            (&all, "https://store.test", "socks", "s:3"),
            (&all, "http://store.test", "socks", "s:3"),
            (&secure, "https://store.test", "direct", ""),
            (&old, "https://store.test", "unknown", "s:3"),
            (&none, "https://store.test", "direct", ""),
        ] {
            let route = proxies.route(&target.parse().unwrap());
            assert_eq!(told(&route), (way, through.to_owned()), "{target}");
        }
        let target = "https://store.test".parse().unwrap();
        assert!(Proxies::none().route(&target) == Route::Direct);
    }

    #[test]
    fn values_name_a_proxy_or_nothing() {
        for (value, named) in [
            ("http://p:1", true),
            ("p:1", true),
            ("https://u:w@p", true),
            ("socks5h://p:1", true),
            ("socks4://p:1", true),
            ("ftp://p:1", false),
            ("http://", false),
            ("a b", false),
        ] {
            assert_eq!(is_proxy(value), named, "{value}");
        }
    }

    #[test]
    fn passwords_go_to_the_proxy_and_are_not_shown() {
        let proxies = proxies("http://u:s3cret@p:1", "http://u:s3cret@q:2", "", "");
        let secure = "https://store.test".parse().unwrap();
        let plain = "http://store.test".parse().unwrap();
        let Route::Tunnel(proxy, Some(basic)) = proxies.route(&secure) else {
            panic!("a tunnel")
        };
        assert_eq!(basic, "Basic dTpzM2NyZXQ=");
        assert!(basic.is_sensitive());
        assert_eq!(proxy, "http://p:1/");
        assert_eq!(proxies.authorization(&secure), None);
        assert_eq!(proxies.authorization(&plain), Some(basic));
        assert!(!format!("{proxies:?}").contains("s3cret"));

        let matcher = Matcher::builder().all("socks5://u:s3cret@s:3").build();
        let socks = Proxies(Some(Arc::new(matcher)));
        let user = Some(("u".to_owned(), "s3cret".to_owned()));
        assert!(socks.route(&plain) == Route::Socks("socks5://s:3/".parse().unwrap(), user));
    }
}
