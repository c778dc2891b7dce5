//! How an option is spelled: flag or key, and its value.

use super::Fault;

/// The deepest nesting of a key; gcsfuse has three levels.
const MAX_DEPTH: usize = 8;
/// What of a name is repeated in a sentence, in characters.
const MAX_SHOWN: usize = 64;
const ENDPOINT_KEY: &str = "gcs-connection:custom-endpoint";

/// An option, cut into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spelled<'a> {
    /// A flag's name, or a key nested by `:`.
    pub(super) name: &'a str,
    pub(super) value: Option<&'a str>,
    /// Whether it is a key of the configuration file.
    pub(super) is_key: bool,
}

impl Spelled<'_> {
    /// The name as rules compare it: gcsfuse reads keys in any case, and this program's flags with `_` for `-`.
    pub(super) fn canonical(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }
}

/// Cuts `option` as the stock sidecar does.
pub(super) fn split(option: &str) -> Result<Spelled<'_>, Fault> {
    if option.chars().any(char::is_control) {
        return Err(Fault::Malformed("no control characters"));
    }
    let spelled = cut(option);
    let segments = spelled.name.split(':');
    if spelled.is_key && segments.clone().count() > MAX_DEPTH {
        return Err(Fault::Malformed("a key of at most 8 parts"));
    }
    let depth_fits = spelled.is_key || !spelled.name.contains(':');
    if !depth_fits || !segments.clone().all(is_name) {
        return Err(Fault::Malformed("flag, flag=value, or key:value"));
    }
    Ok(spelled)
}

fn cut(option: &str) -> Spelled<'_> {
    let key = |name, value| Spelled {
        name,
        value: Some(value),
        is_key: true,
    };
    if !option.contains('=') {
        let endpoint = option.strip_prefix(ENDPOINT_KEY);
        if let Some(value) = endpoint.and_then(|rest| rest.strip_prefix(':')) {
            return key(ENDPOINT_KEY, value);
        }
        if !option.contains("https")
            && let Some((name, value)) = option.rsplit_once(':')
        {
            return key(name, value);
        }
    }
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    Spelled {
        name,
        value,
        is_key: false,
    }
}

/// Dots are not allowed: gcsfuse would take them for nesting, behind the back of every rule here.
fn is_name(segment: &str) -> bool {
    !segment.starts_with('-')
        && !segment.is_empty()
        && segment
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The name of `option` for a sentence, without anything that may be a value.
pub(super) fn shown(option: &str) -> String {
    let name = match split(option) {
        Ok(spelled) => spelled.name,
        Err(_) => option.split([':', '=']).next().unwrap_or_default(),
    };
    let short: String = name.chars().take(MAX_SHOWN).collect();
    match short.as_str() {
        "" => "\"\"".to_owned(),
        _ => short.escape_debug().to_string(),
    }
}

/// Whether `text` is true or false in the spellings of Go's `ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn options_are_cut_as_section_3_of_the_sidecar_mounter_says() {
        for (option, name, value, is_key) in [
            ("implicit-dirs", "implicit-dirs", None, false),
            ("debug_gcs", "debug_gcs", None, false),
            ("uid=1000", "uid", Some("1000"), false),
            ("app-name=a=b", "app-name", Some("a=b"), false),
            ("only-dir=", "only-dir", Some(""), false),
            ("only-dir=a:b", "only-dir", Some("a:b"), false),
            (
                "custom-endpoint=https://s/",
                "custom-endpoint",
                Some("https://s/"),
                false,
            ),
            (
                "logging:severity:error",
                "logging:severity",
                Some("error"),
                true,
            ),
            ("implicit-dirs:true", "implicit-dirs", Some("true"), true),
            (
                "file-cache:max-size-mb:-1",
                "file-cache:max-size-mb",
                Some("-1"),
                true,
            ),
            (
                "file-cache:include-regex:",
                "file-cache:include-regex",
                Some(""),
                true,
            ),
            (
                "gcs-connection:custom-endpoint:http://h:9000/",
                "gcs-connection:custom-endpoint",
                Some("http://h:9000/"),
                true,
            ),
            (
                "gcs-connection:custom-endpoint:https://h/",
                "gcs-connection:custom-endpoint",
                Some("https://h/"),
                true,
            ),
        ] {
            let expected = Spelled {
                name,
                value,
                is_key,
            };
            assert_eq!(split(option), Ok(expected), "{option}");
        }
    }

    #[test]
    fn what_is_no_option_is_named_without_its_value() {
        for (option, name) in [
            ("", "\"\""),
            ("=", "\"\""),
            ("-o=ro", "-o"),
            ("--key-file=/k", "--key-file"),
            ("gcs-auth:token-url:https://h/", "gcs-auth"),
            ("gcs-auth.key-file:/k", "gcs-auth.key-file"),
            ("gcs-auth.key-file=/k", "gcs-auth.key-file"),
            ("gcs-auth::key-file:/k", "gcs-auth"),
            (":x", "\"\""),
            ("a b=c", "a b"),
            ("key-file\n=c", "key-file\\n"),
            ("uid=1\0", "uid"),
            ("a:b:c:d:e:f:g:h:i:1", "a"),
        ] {
            assert!(
                matches!(split(option), Err(Fault::Malformed(_))),
                "{option:?}"
            );
            assert_eq!(shown(option), name, "{option:?}");
        }
        assert_eq!(shown(&"x".repeat(1000)).len(), MAX_SHOWN);
    }

    #[test]
    fn booleans_are_those_of_go() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Some(true));
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Some(false));
        }
        for text in ["", "yes", "tRUE", " true", "on"] {
            assert_eq!(parse_bool(text), None);
        }
    }

    proptest! {
        #[test]
        fn an_option_is_the_sum_of_its_parts(option in "[a-z:=/.-]{0,30}|(gcs-connection:custom-endpoint:)?https?.{0,20}") {
            if let Ok(spelled) = split(&option) {
                let separator = if spelled.is_key { ":" } else { "=" };
                let again = match spelled.value {
                    None => spelled.name.to_owned(),
                    Some(value) => [spelled.name, separator, value].concat(),
                };
                prop_assert_eq!(again, option);
            }
        }

        #[test]
        fn no_option_makes_it_panic(option in ".{0,200}") {
            let _ = split(&option);
            prop_assert!(shown(&option).chars().all(|c| !c.is_control()));
        }
    }
}
