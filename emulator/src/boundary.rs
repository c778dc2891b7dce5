//! Credential access boundaries: what a downscoped token may do at most, read from the `options` of an exchange
//! and held against each permission that an operation needs. See "Downscope with Credential Access Boundaries" in
//! the documentation of Cloud Storage, and `Options` in the reference of the Security Token Service.

mod condition;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::name::BucketName;
use crate::role::{Permission, Resource, Role};

use condition::Condition;

/// A boundary has at most this many rules.
const MAX_RULES: usize = 10;

/// The documented size of a boundary, in characters of its JSON without white space between its words.
const MAX_BOUNDARY: usize = 2048;

/// What is looked at of `options` at all, in bytes: a boundary with each character escaped and room around it.
const MAX_OPTIONS: usize = 32 << 10;

const BUCKETS: &str = "//storage.googleapis.com/projects/_/buckets/";

/// Why `options` were refused. Nothing of them is repeated but numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BoundaryError {
    #[error(
        "Invalid value for \"options\": an access boundary takes at most {MAX_BOUNDARY} characters."
    )]
    TooLong,
    #[error(
        "Invalid value for \"options\": it must be the JSON of an Options object with `accessBoundary` \
         and optionally `userProject`."
    )]
    NoOptions,
    #[error(
        "Invalid value for \"options\": `accessBoundary` must be an object with `accessBoundaryRules`, \
         each with `availableResource`, `availablePermissions` and optionally `availabilityCondition`."
    )]
    NoBoundary,
    #[error(
        "Invalid value for \"options\": an access boundary takes 1 to {MAX_RULES} rules, not {0}."
    )]
    Rules(usize),
    #[error(
        "Invalid value for \"options\": the `availableResource` of rule {0} must be {BUCKETS}BUCKET."
    )]
    Resource(usize),
    #[error(
        "Invalid value for \"options\": the `availablePermissions` of rule {0} must be one or more of \
         `inRole:ROLE`, where ROLE is a predefined role of Cloud Storage that can be granted here, such as \
         roles/storage.objectViewer."
    )]
    Permissions(usize),
    #[error(
        "Invalid value for \"options\": the expression of rule {0} is not supported here. Supported are \
         resource.name.startsWith('…') and \
         api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('…'), alone or joined by ||."
    )]
    Condition(usize),
}

/// What a token may do at most: what any of the rules allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    bucket: BucketName,
    roles: Vec<Role>,
    condition: Option<Condition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Options {
    #[serde(default)]
    access_boundary: Option<Value>,
    /// Quota and billing, which nothing here counts.
    #[serde(default, rename = "userProject")]
    _user_project: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AccessBoundary {
    access_boundary_rules: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AccessBoundaryRule {
    available_resource: String,
    available_permissions: Vec<String>,
    #[serde(default)]
    availability_condition: Option<Value>,
}

/// `google.type.Expr`. What is said about the expression means nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expr {
    expression: String,
    #[serde(default, rename = "title")]
    _title: Option<String>,
    #[serde(default, rename = "description")]
    _description: Option<String>,
    #[serde(default, rename = "location")]
    _location: Option<String>,
}

impl Boundary {
    /// The boundary in the `options` of an exchange; `None` for options without one.
    pub(crate) fn parse(options: &str) -> Result<Option<Self>, BoundaryError> {
        if options.len() > MAX_OPTIONS {
            return Err(BoundaryError::TooLong);
        }
        let options = serde_json::from_str(&unquoted(options)).ok();
        let options: Options = options.and_then(object).ok_or(BoundaryError::NoOptions)?;
        let Some(boundary) = options.access_boundary else {
            return Ok(None);
        };
        if boundary.to_string().chars().count() > MAX_BOUNDARY {
            return Err(BoundaryError::TooLong);
        }
        let boundary: AccessBoundary = object(boundary).ok_or(BoundaryError::NoBoundary)?;
        let rules = boundary.access_boundary_rules;
        if !(1..=MAX_RULES).contains(&rules.len()) {
            return Err(BoundaryError::Rules(rules.len()));
        }
        let rules = rules.into_iter().zip(1..);
        let rules = rules.map(|(rule, number)| Rule::parse(rule, number));
        rules
            .collect::<Result<_, _>>()
            .map(|rules| Some(Self(rules)))
    }

    /// Whether a permission is inside for something of the bucket.
    pub(crate) fn allows(
        &self,
        bucket: &BucketName,
        permission: Permission,
        resource: Resource<'_>,
    ) -> bool {
        self.0.iter().any(|rule| {
            rule.bucket == *bucket
                && rule.roles.iter().any(|role| role.grants(permission))
                && rule
                    .condition
                    .as_ref()
                    .is_none_or(|condition| condition.holds(bucket, resource))
        })
    }
}

/// A message from an object; an array of its fields in their order, which serde would take as well, is none.
fn object<T: DeserializeOwned>(value: Value) -> Option<T> {
    let value = Some(value).filter(Value::is_object)?;
    serde_json::from_value(value).ok()
}

/// Google's Python library percent-encodes the options once more than a form needs.
fn unquoted(options: &str) -> Cow<'_, str> {
    if options.starts_with('%') {
        percent_decode_str(options).decode_utf8_lossy()
    } else {
        Cow::Borrowed(options)
    }
}

impl Rule {
    fn parse(rule: Value, number: usize) -> Result<Self, BoundaryError> {
        let rule: AccessBoundaryRule = object(rule).ok_or(BoundaryError::NoBoundary)?;
        let bucket = rule
            .available_resource
            .strip_prefix(BUCKETS)
            .and_then(|name| BucketName::parse(name).ok())
            .ok_or(BoundaryError::Resource(number))?;
        let role = |text: &String| Role::from_name(text.strip_prefix("inRole:")?);
        let roles: Option<Vec<Role>> = rule.available_permissions.iter().map(role).collect();
        let roles = roles
            .filter(|roles| !roles.is_empty())
            .ok_or(BoundaryError::Permissions(number))?;
        let condition = match rule.availability_condition {
            None => None,
            Some(condition) => {
                let expr: Expr = object(condition).ok_or(BoundaryError::NoBoundary)?;
                let condition = Condition::parse(&expr.expression);
                Some(condition.ok_or(BoundaryError::Condition(number))?)
            }
        };
        Ok(Self {
            bucket,
            roles,
            condition,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rule(role: &str, condition: Option<&str>) -> Value {
        let mut rule = json!({
            "availableResource": format!("{BUCKETS}bucket"),
            "availablePermissions": [format!("inRole:{role}")],
        });
        if let Some(expression) = condition {
            rule["availabilityCondition"] = json!({"title": "t", "expression": expression});
        }
        rule
    }

    fn options(rules: &[Value]) -> String {
        json!({"accessBoundary": {"accessBoundaryRules": rules}}).to_string()
    }

    fn parse(options: &str) -> Result<Option<Boundary>, BoundaryError> {
        Boundary::parse(options)
    }

    fn prefix(start: &str) -> String {
        format!(
            "resource.name.startsWith('projects/_/buckets/bucket/objects/{start}') || \
             api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{start}')"
        )
    }

    #[test]
    fn rules_are_a_union_of_bucket_role_and_prefix() {
        let options = options(&[
            rule("roles/storage.objectViewer", None),
            rule("roles/storage.objectUser", Some(&prefix("mine/"))),
        ]);
        let boundary = parse(&options).unwrap().unwrap();
        let [bucket, other] = ["bucket", "other"].map(|name| BucketName::parse(name).unwrap());
        for (permission, resource, inside) in [
            (Permission::Get, Resource::Object("x"), true),
            (Permission::List, Resource::Listing(""), true),
            (Permission::Create, Resource::Object("mine/x"), true),
            (Permission::Delete, Resource::Object("mine/"), true),
            (Permission::Create, Resource::Object("mine"), false),
            (Permission::Create, Resource::Object("x"), false),
            (Permission::BucketGet, Resource::Bucket, false),
        ] {
            let allowed = boundary.allows(&bucket, permission, resource);
            assert_eq!(allowed, inside, "{permission:?} {resource:?}");
            assert!(!boundary.allows(&other, permission, resource));
        }
    }

    #[test]
    fn lists_are_inside_by_their_prefix() {
        let options = options(&[rule("roles/storage.objectViewer", Some(&prefix("a/")))]);
        let boundary = parse(&options).unwrap().unwrap();
        let bucket = BucketName::parse("bucket").unwrap();
        for (listed, inside) in [("a/", true), ("a/b", true), ("a", false), ("", false)] {
            let allowed = boundary.allows(&bucket, Permission::List, Resource::Listing(listed));
            assert_eq!(allowed, inside, "{listed}");
        }
        assert!(!boundary.allows(&bucket, Permission::List, Resource::Bucket));
    }

    #[test]
    fn options_without_a_boundary_and_in_another_quoting() {
        assert_eq!(parse(r#"{"userProject":"p"}"#), Ok(None));
        assert_eq!(parse("{}"), Ok(None));
        let plain = options(&[rule("roles/storage.objectViewer", Some(&prefix("ü%/")))]);
        let quoted =
            percent_encoding::utf8_percent_encode(&plain, percent_encoding::NON_ALPHANUMERIC);
        assert_eq!(parse(&quoted.to_string()), parse(&plain));
        assert!(parse(&plain).unwrap().is_some());
    }

    #[test]
    fn each_fault_is_named() {
        let viewer = || rule("roles/storage.objectViewer", None);
        let with = |key: &str, value: Value| {
            let mut rule = viewer();
            rule[key] = value;
            options(&[viewer(), rule])
        };
        let long = options(&vec![
            rule(
                "roles/storage.objectViewer",
                Some(&prefix(&"x".repeat(300)))
            );
            3
        ]);
        for (options, error) in [
            (String::new(), BoundaryError::NoOptions),
            ("[]".into(), BoundaryError::NoOptions),
            (r#"{"boundary":{}}"#.into(), BoundaryError::NoOptions),
            (r#"{"accessBoundary":7}"#.into(), BoundaryError::NoBoundary),
            (r#"{"accessBoundary":{}}"#.into(), BoundaryError::NoBoundary),
            (
                r#"{"accessBoundary":[[]]}"#.into(),
                BoundaryError::NoBoundary,
            ),
            (options(&[json!(["a", ["b"]])]), BoundaryError::NoBoundary),
            (
                with("availabilityCondition", json!(["x"])),
                BoundaryError::NoBoundary,
            ),
            (options(&[]), BoundaryError::Rules(0)),
            (options(&vec![viewer(); 11]), BoundaryError::Rules(11)),
            (long, BoundaryError::TooLong),
            (" ".repeat(MAX_OPTIONS + 1), BoundaryError::TooLong),
            (with("x", json!(1)), BoundaryError::NoBoundary),
            (
                with(
                    "availableResource",
                    json!("//storage.googleapis.com/bucket"),
                ),
                BoundaryError::Resource(2),
            ),
            (
                with(
                    "availableResource",
                    json!(format!("{BUCKETS}bucket/objects/a")),
                ),
                BoundaryError::Resource(2),
            ),
            (
                with("availablePermissions", json!([])),
                BoundaryError::Permissions(2),
            ),
            (
                with("availablePermissions", json!(["storage.objects.get"])),
                BoundaryError::Permissions(2),
            ),
            (
                with("availablePermissions", json!(["inRole:roles/owner"])),
                BoundaryError::Permissions(2),
            ),
            (
                with("availabilityCondition", json!({"expression": "true"})),
                BoundaryError::Condition(2),
            ),
        ] {
            assert_eq!(parse(&options).unwrap_err(), error, "{options}");
        }
        assert!(parse(&options(&vec![viewer(); MAX_RULES])).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "\\PC{0,300}", key in "[{}\\[\\]\"':,a-z%0-9 ]{0,200}") {
            for options in [&text, &key] {
                let _ = parse(options);
                let _ = parse(&format!("%7B{options}"));
            }
            let boundary = format!(r#"{{"accessBoundary":{key}}}"#);
            let _ = parse(&boundary);
        }

        #[test]
        fn a_prefix_is_what_it_says(start in "[^\\\\'\r\n]{0,40}", name in "[^\r\n]{1,60}") {
            let options = options(&[rule("roles/storage.objectViewer", Some(&prefix(&start)))]);
            let boundary = parse(&options).unwrap().unwrap();
            let bucket = BucketName::parse("bucket").unwrap();
            for name in [name.clone(), format!("{start}{name}")] {
                let inside = boundary.allows(&bucket, Permission::Get, Resource::Object(&name));
                prop_assert_eq!(inside, name.starts_with(&start));
                let listed = boundary.allows(&bucket, Permission::List, Resource::Listing(&name));
                prop_assert_eq!(listed, name.starts_with(&start));
            }
        }

        #[test]
        fn nesting_ends(depth in 1usize..20_000) {
            let options = format!(r#"{{"accessBoundary":{}"#, "[".repeat(depth));
            prop_assert!(parse(&options).is_err());
        }
    }
}
