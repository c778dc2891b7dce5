//! The four preconditions of the JSON API, their XML headers, and the entity tags of RFC 9110 for both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::error::{ApiError, Kind};
use crate::query::Query;

/// Generation and metageneration of the live object; both zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) generation: u64,
    pub(crate) metageneration: u64,
    /// That of its data, which the XML API has for its entity tag.
    pub(crate) md5: Option<[u8; 16]>,
}

impl Version {
    /// The entity tag of the JSON API. Opaque to callers; GCS packs generation and metageneration as two protobuf
    /// varints.
    pub(crate) fn etag(self) -> String {
        let mut packed = vec![0x08];
        varint(&mut packed, self.generation);
        packed.push(0x10);
        varint(&mut packed, self.metageneration);
        BASE64.encode(packed)
    }

    /// The entity tag of the XML API, without its quotes: the MD5 in hexadecimal where there is one.
    pub(crate) fn xml_etag(self) -> String {
        match self.md5 {
            None => self.etag(),
            Some(md5) => md5.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// The entity tags of an `If-Match` or `If-None-Match`. Each API takes the other's too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntityTags(Vec<String>);

impl EntityTags {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let lines = headers.get_all(name).iter().map(HeaderValue::to_str);
        let lines: Vec<&str> = lines.map(Result::unwrap_or_default).collect();
        let tags = lines.iter().flat_map(|line| line.split(',')).map(|tag| {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            tag.trim_matches('"').to_owned()
        });
        (!lines.is_empty()).then(|| Self(tags.collect()))
    }

    fn name(&self, live: Version) -> bool {
        let (json, xml) = (live.etag(), live.xml_etag());
        let exists = live != Version::default();
        exists
            && self
                .0
                .iter()
                .any(|tag| tag == "*" || *tag == json || *tag == xml)
    }
}

/// What the caller demands of an object before the request acts on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preconditions {
    pub(crate) generation_match: Option<u64>,
    pub(crate) generation_not_match: Option<u64>,
    pub(crate) metageneration_match: Option<u64>,
    pub(crate) metageneration_not_match: Option<u64>,
    pub(crate) if_match: Option<EntityTags>,
    pub(crate) if_none_match: Option<EntityTags>,
}

impl Preconditions {
    /// `ifGenerationMatch` and its kin, `If-Match` and `If-None-Match`.
    pub(crate) fn target(query: &Query, headers: &HeaderMap) -> Result<Self, ApiError> {
        Ok(Self::numbers(query)?.with_tags(headers))
    }

    /// `ifGenerationMatch` and its kin, of what has no entity tag.
    pub(crate) fn numbers(query: &Query) -> Result<Self, ApiError> {
        Ok(Self {
            generation_match: query.number("ifGenerationMatch")?,
            generation_not_match: query.number("ifGenerationNotMatch")?,
            metageneration_match: query.number("ifMetagenerationMatch")?,
            metageneration_not_match: query.number("ifMetagenerationNotMatch")?,
            ..Self::default()
        })
    }

    /// `ifSourceGenerationMatch` and its kin, of copies and moves.
    pub(crate) fn source(query: &Query) -> Result<Self, ApiError> {
        Ok(Self {
            generation_match: query.number("ifSourceGenerationMatch")?,
            generation_not_match: query.number("ifSourceGenerationNotMatch")?,
            metageneration_match: query.number("ifSourceMetagenerationMatch")?,
            metageneration_not_match: query.number("ifSourceMetagenerationNotMatch")?,
            ..Self::default()
        })
    }

    fn with_tags(self, headers: &HeaderMap) -> Self {
        Self {
            if_match: EntityTags::of(headers, &header::IF_MATCH),
            if_none_match: EntityTags::of(headers, &header::IF_NONE_MATCH),
            ..self
        }
    }

    /// `x-goog-if-generation-match` and `x-goog-if-metageneration-match` of the XML API, `If-Match` and
    /// `If-None-Match`.
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
        }
        .with_tags(headers))
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
            && self.if_match.as_ref().is_none_or(|tags| tags.name(live))
    }

    fn not_matches_hold(&self, live: Version) -> bool {
        let differs = |unwanted: Option<u64>, actual| unwanted.is_none_or(|value| value != actual);
        differs(self.generation_not_match, live.generation)
            && differs(self.metageneration_not_match, live.metageneration)
            && !self
                .if_none_match
                .as_ref()
                .is_some_and(|tags| tags.name(live))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Version = Version {
        generation: 7,
        metageneration: 2,
        md5: Some([0xab; 16]),
    };

    fn verdicts(query: &str, live: Version) -> (u16, u16) {
        let conditions = Preconditions::numbers(&Query::parse(Some(query))).unwrap();
        judged(&conditions, live)
    }

    fn judged(conditions: &Preconditions, live: Version) -> (u16, u16) {
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
    fn table_of_entity_tags() {
        let (json, xml) = (LIVE.etag(), LIVE.xml_etag());
        assert_eq!((json.as_str(), xml.len()), ("CAcQAg==", 32));
        let none = Version::default();
        for (name, value, live, expected) in [
            ("if-match", json.clone(), LIVE, (200, 200)),
            ("if-match", format!("\"{xml}\""), LIVE, (200, 200)),
            ("if-match", format!("\"x\", {json}"), LIVE, (200, 200)),
            ("if-match", "*".to_owned(), LIVE, (200, 200)),
            ("if-match", "*".to_owned(), none, (412, 412)),
            ("if-match", "\"x\"".to_owned(), LIVE, (412, 412)),
            ("if-match", String::new(), LIVE, (412, 412)),
            ("if-none-match", json.clone(), LIVE, (304, 412)),
            ("if-none-match", format!("W/\"{xml}\""), LIVE, (304, 412)),
            ("if-none-match", "*".to_owned(), LIVE, (304, 412)),
            ("if-none-match", "*".to_owned(), none, (200, 200)),
            ("if-none-match", "\"x\"".to_owned(), LIVE, (200, 200)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let conditions = Preconditions::target(&Query::default(), &headers).unwrap();
            assert_eq!(judged(&conditions, live), expected, "{name}: {value}");
            let xml = Preconditions::headers(&headers).unwrap();
            assert_eq!(xml, conditions);
        }
    }

    #[test]
    fn varints_are_protobufs() {
        let mut out = Vec::new();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 0x02]);
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
