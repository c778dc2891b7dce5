//! Less than an identity may do: a credential access boundary, which limits a token to buckets and
//! prefixes. Pure. See "Credential Access Boundaries" in the Cloud Storage and IAM documentation.

use std::fmt;

use serde_json::{Value, json};

use crate::error::{Error, Kind};

/// The most rules that a boundary may have.
const MOST_RULES: usize = 10;

/// What a token is limited to. What the identity itself may not do, no boundary allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Boundary(Vec<Rule>);

/// What may be done in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read and list objects.
    Read,
    /// That, and create, replace, change and delete them.
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    bucket: String,
    prefix: String,
    access: Access,
}

impl Boundary {
    /// A boundary around the objects of `bucket` whose names begin with `prefix`; an empty one is
    /// the whole bucket. The bucket's own metadata is outside in either case.
    ///
    /// # Errors
    /// [`Kind::Config`] if `bucket` is not the name of a bucket.
    pub fn around(bucket: &str, prefix: &str, access: Access) -> Result<Self, Error> {
        Self(Vec::new()).and(bucket, prefix, access)
    }

    /// The same with another bucket or prefix inside.
    ///
    /// # Errors
    /// [`Kind::Config`] if `bucket` is not the name of a bucket, and for an eleventh one.
    pub fn and(mut self, bucket: &str, prefix: &str, access: Access) -> Result<Self, Error> {
        let named = (3..=222).contains(&bucket.len())
            && bucket.bytes().all(|byte| {
                byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || matches!(byte, b'-' | b'_' | b'.')
            });
        if !named || prefix.contains(['\r', '\n', '\0']) {
            return Err(Error::new(
                Kind::Config,
                "a credential access boundary takes the name of a bucket and the beginning of \
                 object names",
            ));
        }
        if self.0.len() >= MOST_RULES {
            let message = format!("a credential access boundary has room for {MOST_RULES} rules");
            return Err(Error::new(Kind::Config, message));
        }
        self.0.push(Rule {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            access,
        });
        Ok(self)
    }

    /// The `options` of a token exchange.
    pub(crate) fn options(&self) -> String {
        let rules: Vec<Value> = self.0.iter().map(Rule::json).collect();
        json!({"accessBoundary": {"accessBoundaryRules": rules}}).to_string()
    }
}

impl fmt::Display for Boundary {
    /// `gs://BUCKET/PREFIX`, with `(read-only)` behind what may not be changed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let only = match rule.access {
                Access::Read => " (read-only)",
                Access::Write => "",
            };
            write!(f, "{comma}gs://{}/{}{only}", rule.bucket, rule.prefix)?;
        }
        Ok(())
    }
}

impl Rule {
    fn json(&self) -> Value {
        let role = match self.access {
            Access::Read => "inRole:roles/storage.objectViewer",
            Access::Write => "inRole:roles/storage.objectUser",
        };
        let mut rule = json!({
            "availableResource": format!("//storage.googleapis.com/projects/_/buckets/{}", self.bucket),
            "availablePermissions": [role],
        });
        if !self.prefix.is_empty() {
            // A list request names no object, so its prefix is looked at instead.
            let objects = quoted(&format!(
                "projects/_/buckets/{}/objects/{}",
                self.bucket, self.prefix
            ));
            let prefix = quoted(&self.prefix);
            rule["availabilityCondition"] = json!({"expression": format!(
                "resource.name.startsWith({objects}) || \
                 api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith({prefix})"
            )});
        }
        rule
    }
}

/// A string literal of the Common Expression Language.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('\'', r"\'");
    format!("'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(boundary: &Boundary) -> Value {
        serde_json::from_str(&boundary.options()).unwrap()
    }

    #[test]
    fn a_bucket_and_a_prefix_become_rules() {
        let boundary = Boundary::around("whole", "", Access::Write)
            .and_then(|boundary| boundary.and("part", "a/b'\\", Access::Read))
            .unwrap();
        assert_eq!(
            boundary.to_string(),
            r"gs://whole/, gs://part/a/b'\ (read-only)"
        );
        assert_eq!(
            options(&boundary),
            json!({"accessBoundary": {"accessBoundaryRules": [
                {
                    "availableResource": "//storage.googleapis.com/projects/_/buckets/whole",
                    "availablePermissions": ["inRole:roles/storage.objectUser"],
                },
                {
                    "availableResource": "//storage.googleapis.com/projects/_/buckets/part",
                    "availablePermissions": ["inRole:roles/storage.objectViewer"],
                    "availabilityCondition": {"expression":
                        r"resource.name.startsWith('projects/_/buckets/part/objects/a/b\'\\') || api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('a/b\'\\')"
                    },
                },
            ]}})
        );
    }

    #[test]
    fn what_is_no_bucket_and_what_is_too_much_is_refused() {
        for (bucket, prefix) in [
            ("", ""),
            ("ab", ""),
            ("Upper", ""),
            ("a/b/c", ""),
            ("a'b", ""),
            ("good", "a\nb"),
        ] {
            let refused = Boundary::around(bucket, prefix, Access::Read).unwrap_err();
            assert_eq!(refused.kind(), Kind::Config, "{bucket}");
        }
        let mut boundary = Boundary::around("bucket", "", Access::Read).unwrap();
        for _ in 1..MOST_RULES {
            boundary = boundary.and("bucket", "", Access::Read).unwrap();
        }
        assert_eq!(
            boundary.and("bucket", "", Access::Read).unwrap_err().kind(),
            Kind::Config
        );
    }
}
