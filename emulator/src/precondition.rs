//! The four preconditions of the JSON API, and their XML headers.

use http::HeaderMap;

use crate::error::{ApiError, Kind};
use crate::query::Query;

/// Generation and metageneration of the live object; both zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) generation: u64,
    pub(crate) metageneration: u64,
}

/// What the caller demands of an object before the request acts on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preconditions {
    pub(crate) generation_match: Option<u64>,
    pub(crate) generation_not_match: Option<u64>,
    pub(crate) metageneration_match: Option<u64>,
    pub(crate) metageneration_not_match: Option<u64>,
}

impl Preconditions {
    /// `ifGenerationMatch` and its kin.
    pub(crate) fn target(query: &Query) -> Result<Self, ApiError> {
        Ok(Self {
            generation_match: query.number("ifGenerationMatch")?,
            generation_not_match: query.number("ifGenerationNotMatch")?,
            metageneration_match: query.number("ifMetagenerationMatch")?,
            metageneration_not_match: query.number("ifMetagenerationNotMatch")?,
        })
    }

    /// `ifSourceGenerationMatch` and its kin, of copies and moves.
    pub(crate) fn source(query: &Query) -> Result<Self, ApiError> {
        Ok(Self {
            generation_match: query.number("ifSourceGenerationMatch")?,
            generation_not_match: query.number("ifSourceGenerationNotMatch")?,
            metageneration_match: query.number("ifSourceMetagenerationMatch")?,
            metageneration_not_match: query.number("ifSourceMetagenerationNotMatch")?,
        })
    }

    /// `x-goog-if-generation-match` and `x-goog-if-metageneration-match` of the XML API.
    pub(crate) fn headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        let number = |name: &str| -> Result<Option<u64>, ApiError> {
            let Some(value) = headers.get(name) else {
                return Ok(None);
            };
            let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
            let invalid = || ApiError::invalid(format!("Invalid value for header {name}"));
            parsed.map(Some).ok_or_else(invalid)
        };
        Ok(Self {
            generation_match: number("x-goog-if-generation-match")?,
            metageneration_match: number("x-goog-if-metageneration-match")?,
            ..Self::default()
        })
    }

    /// Checks a read: a failed match is 412, a failed not-match means that the caller has the object already, 304.
    pub(crate) fn check_read(&self, live: Version) -> Result<(), ApiError> {
        if !self.matches_hold(live) {
            return Err(ApiError::condition_not_met());
        }
        if !self.not_matches_hold(live) {
            return Err(ApiError::new(Kind::NotModified, ""));
        }
        Ok(())
    }

    /// Checks a mutation: whatever fails is 412.
    pub(crate) fn check_write(&self, live: Version) -> Result<(), ApiError> {
        if self.matches_hold(live) && self.not_matches_hold(live) {
            Ok(())
        } else {
            Err(ApiError::condition_not_met())
        }
    }

    fn matches_hold(&self, live: Version) -> bool {
        let equal = |wanted: Option<u64>, actual| wanted.is_none_or(|value| value == actual);
        equal(self.generation_match, live.generation)
            && equal(self.metageneration_match, live.metageneration)
    }

    fn not_matches_hold(&self, live: Version) -> bool {
        let differs = |unwanted: Option<u64>, actual| unwanted.is_none_or(|value| value != actual);
        differs(self.generation_not_match, live.generation)
            && differs(self.metageneration_not_match, live.metageneration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Version = Version {
        generation: 7,
        metageneration: 2,
    };

    fn verdicts(query: &str, live: Version) -> (u16, u16) {
        let conditions = Preconditions::target(&Query::parse(Some(query))).unwrap();
        let status = |result: Result<(), ApiError>| {
            result.map_or_else(|e| e.kind.status().as_u16(), |()| 200)
        };
        (
            status(conditions.check_read(live)),
            status(conditions.check_write(live)),
        )
    }

    #[test]
    fn table_of_reads_and_writes() {
        for (query, live, expected) in [
            ("", LIVE, (200, 200)),
            ("ifGenerationMatch=7", LIVE, (200, 200)),
            ("ifGenerationMatch=8", LIVE, (412, 412)),
            ("ifGenerationMatch=0", LIVE, (412, 412)),
            ("ifGenerationMatch=0", Version::default(), (200, 200)),
            ("ifGenerationNotMatch=7", LIVE, (304, 412)),
            ("ifGenerationNotMatch=8", LIVE, (200, 200)),
            ("ifGenerationNotMatch=0", Version::default(), (304, 412)),
            ("ifMetagenerationMatch=2", LIVE, (200, 200)),
            ("ifMetagenerationMatch=1", LIVE, (412, 412)),
            ("ifMetagenerationNotMatch=2", LIVE, (304, 412)),
            ("ifMetagenerationNotMatch=1", LIVE, (200, 200)),
            (
                "ifGenerationMatch=8&ifGenerationNotMatch=7",
                LIVE,
                (412, 412),
            ),
        ] {
            assert_eq!(verdicts(query, live), expected, "{query}");
        }
    }

    #[test]
    fn xml_headers_are_read_and_checked() {
        let mut headers = HeaderMap::new();
        headers.insert("x-goog-if-generation-match", "7".parse().unwrap());
        let conditions = Preconditions::headers(&headers).unwrap();
        assert_eq!(conditions.generation_match, Some(7));
        headers.insert("x-goog-if-generation-match", "x".parse().unwrap());
        assert!(Preconditions::headers(&headers).is_err());
    }
}
