//! The query string of a request, decoded once.

use percent_encoding::percent_decode_str;

use crate::error::{ApiError, Kind};

/// Parameters in the order they came; the first of a name counts, but where the API takes several.
#[derive(Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(raw: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(raw.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Refuses a query that is not UTF-8, whose names and values would be others than were meant.
    pub(crate) fn check(raw: Option<&str>) -> Result<(), ApiError> {
        match percent_decode_str(raw.unwrap_or_default()).decode_utf8() {
            Ok(_) => Ok(()),
            Err(_) => Err(ApiError::invalid("The query of the request is not UTF-8.")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The names of all parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Every value of a parameter that may be repeated.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.text(name).ok_or_else(|| {
            ApiError::new(
                Kind::MissingParameter,
                format!("Required parameter: {name}"),
            )
        })
    }

    /// An unsigned number, the only kind of number that the API has.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let invalid = || ApiError::invalid(format!("Invalid value for parameter {name}: {text:?}"));
        text.parse().map(Some).map_err(|_| invalid())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// A parameter whose empty value means that it was not given.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_is_a_query() {
        for (raw, good) in [
            ("name=%C3%A9", true),
            ("name=%ff%fe", false),
            ("%C3&%A9", false),
        ] {
            assert_eq!(Query::check(Some(raw)).is_ok(), good, "{raw}");
        }
        assert!(Query::check(None).is_ok());
    }

    #[test]
    fn decodes_and_takes_the_first() {
        let query = Query::parse(Some(
            "name=a%2Fb%2Bc+d&name=z&ifGenerationMatch=0&x=-1&f=true",
        ));
        assert_eq!(query.text("name"), Some("a/b+c d"));
        assert!(query.all("name").eq(["a/b+c d", "z"]));
        assert_eq!(query.number("ifGenerationMatch").unwrap(), Some(0));
        assert!(query.number("x").is_err());
        assert!(query.flag("f") && !query.flag("g"));
        assert!(query.required("absent").is_err());
    }
}
