//! Partial responses: the `fields` parameter, such as `items(name,size),prefixes,nextPageToken`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::ApiError;

/// Selectors nest at most this deep; no resource does more.
const MAX_DEPTH: usize = 8;

/// Which keys of a reply are wanted. An empty mask wants everything below it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask(BTreeMap<String, Mask>);

impl Mask {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = Parser { rest: text };
        let mask = parser.list(0)?;
        if parser.rest.is_empty() {
            Ok(mask)
        } else {
            Err(invalid())
        }
    }

    /// Drops what is not wanted. Arrays are filtered element by element.
    pub(crate) fn apply(&self, value: Value) -> Value {
        match value {
            Value::Object(entries) if !self.0.is_empty() => {
                Value::Object(self.apply_entries(entries))
            }
            Value::Array(items) => items.into_iter().map(|item| self.apply(item)).collect(),
            other => other,
        }
    }

    fn apply_entries(&self, entries: Map<String, Value>) -> Map<String, Value> {
        let wanted = entries.into_iter().filter_map(|(key, value)| {
            let mask = self.0.get(&key).or_else(|| self.0.get("*"))?;
            Some((key, mask.apply(value)))
        });
        wanted.collect()
    }
}

fn invalid() -> ApiError {
    ApiError::invalid("Invalid field selection")
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// `selector , selector , …` up to the end or a closing parenthesis.
    fn list(&mut self, depth: usize) -> Result<Mask, ApiError> {
        let mut mask = Mask::default();
        loop {
            let (name, below) = self.selector(depth)?;
            mask.0.entry(name).or_default().0.extend(below.0);
            if !self.eat(',') {
                return Ok(mask);
            }
        }
    }

    /// `name`, `name/selector` or `name(list)`.
    fn selector(&mut self, depth: usize) -> Result<(String, Mask), ApiError> {
        if depth == MAX_DEPTH {
            return Err(invalid());
        }
        let name = self.name()?;
        let mut below = Mask::default();
        if self.eat('/') {
            let (child, mask) = self.selector(depth + 1)?;
            below.0.insert(child, mask);
        } else if self.eat('(') {
            below = self.list(depth + 1)?;
            if !self.eat(')') {
                return Err(invalid());
            }
        }
        Ok((name, below))
    }

    fn name(&mut self) -> Result<String, ApiError> {
        let trimmed = self.rest.trim_start();
        let end = trimmed.find(['/', '(', ')', ',']).unwrap_or(trimmed.len());
        let (name, rest) = trimmed.split_at(end);
        self.rest = rest;
        match name.trim() {
            "" => Err(invalid()),
            name => Ok(name.to_owned()),
        }
    }

    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_nested_lists_and_paths() {
        let reply = json!({"kind": "k", "items": [{"name": "a", "size": "1", "etag": "e"}], "prefixes": ["p/"]});
        let filter = |fields: &str| Mask::parse(fields).unwrap().apply(reply.clone());
        assert_eq!(
            filter("items(name, size),prefixes,nextPageToken"),
            json!({"items": [{"name": "a", "size": "1"}], "prefixes": ["p/"]})
        );
        assert_eq!(filter("items/name"), json!({"items": [{"name": "a"}]}));
        assert_eq!(
            filter("items/name,items/size"),
            json!({"items": [{"name": "a", "size": "1"}]})
        );
        assert_eq!(filter("*"), reply);
        assert_eq!(filter("items"), json!({"items": reply["items"]}));
    }

    #[test]
    fn refuses_what_does_not_parse() {
        let deep = "a/".repeat(20) + "b";
        for fields in ["", ",", "a(", "a(b", "a)", "a//b", deep.as_str()] {
            assert!(Mask::parse(fields).is_err(), "{fields}");
        }
    }
}
