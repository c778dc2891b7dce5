use std::time::{Duration, SystemTime};

use gcsmount_gcs::{Generation, Metageneration, ObjectName};
use proptest::prelude::*;

use super::*;

fn with(keys: &[(&str, &str)]) -> Attributes {
    let keys = keys.iter();
    Attributes {
        metadata: keys
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..Attributes::default()
    }
}

fn custom(name: &[u8]) -> Name<'_> {
    Name::Custom(name)
}

#[test]
fn only_user_attributes_have_a_place() {
    for (name, expected) in [
        ("user.k", Some(custom(b"k"))),
        ("user.gcs.md5", Some(Name::View(b"md5"))),
        ("user.gcs", Some(custom(b"gcs"))),
        ("user.", None),
        ("security.capability", None),
        ("system.posix_acl_access", None),
        ("trusted.x", None),
    ] {
        assert_eq!(Name::parse(name.as_bytes()), expected, "{name}");
    }
}

#[test]
fn keys_and_values_have_this_form() {
    for (name, value, key, kept) in [
        (
            &b"mime_type"[..],
            &b"a/b"[..],
            "gcsmount-xattr-mime_type",
            "a/b",
        ),
        (b"Key", b"", "gcsmount-xattrhex-4b6579", "base64url:"),
        (
            b"\xff",
            b"\xff\xfe",
            "gcsmount-xattrhex-ff",
            "base64url:__4",
        ),
        (b"a b", b" x", "gcsmount-xattrhex-612062", "base64url:IHg"),
        (
            b"e",
            b"base64url:",
            "gcsmount-xattr-e",
            "base64url:YmFzZTY0dXJsOg",
        ),
    ] {
        let edits = set(&with(&[]), custom(name), value, SetXattr::Any).unwrap();
        let expected = [(key.to_owned(), Some(kept.to_owned()))];
        assert_eq!(edits.metadata, expected.into(), "{name:?}");
    }
}

#[test]
fn a_list_shows_what_can_be_got_and_no_view() {
    let attributes = with(&[
        ("gcsmount-xattr-a", "1"),
        ("gcsmount-xattr-B", "is not written like this"),
        ("gcsmount-xattr-gcs.md5", "is of the view"),
        ("gcsmount-xattr-", "has no name"),
        ("gcsmount-xattrhex-42", "2"),
        ("gcsmount-xattrhex-4", "is half a byte"),
        ("gcsmount-xattrhex-zz", "is none"),
        ("team", "is not ours"),
    ]);
    assert_eq!(list(&attributes), b"user.a\0user.B\0");
    assert_eq!(list(&with(&[])), b"");
}

#[test]
fn set_and_remove_look_at_what_is_there() {
    let none = with(&[]);
    let one = with(&[("gcsmount-xattr-k", "v")]);
    let refused = |attributes, how| set(attributes, custom(b"k"), b"w", how).err();
    assert_eq!(refused(&none, SetXattr::Replace), Some(Errno::ENODATA));
    assert_eq!(refused(&one, SetXattr::Create), Some(Errno::EEXIST));
    assert_eq!(refused(&none, SetXattr::Create), None);
    assert_eq!(refused(&one, SetXattr::Replace), None);
    assert_eq!(remove(&none, custom(b"k")), Err(Errno::ENODATA));
    let removed = remove(&one, custom(b"k")).unwrap();
    assert_eq!(removed.applied(&one), none);
    assert_eq!(remove(&one, Name::View(b"md5")), Err(Errno::EPERM));
}

#[test]
fn an_object_holds_so_much_and_a_publication_has_room_left() {
    let set = |attributes: &Attributes, len: usize| {
        set(attributes, custom(b"k"), &vec![b'v'; len], SetXattr::Any).map(drop)
    };
    assert_eq!(set(&with(&[]), VALUE_LIMIT), Ok(()));
    assert_eq!(set(&with(&[]), VALUE_LIMIT + 1), Err(Errno::E2BIG));
    assert_eq!(set(&with(&[]), 1 << 16), Err(Errno::E2BIG));
    let foreign = "x".repeat(4 << 10);
    let foreign = with(&[("foreign", &foreign)]);
    assert_eq!(set(&foreign, 3 << 10), Ok(()));
    assert_eq!(set(&foreign, VALUE_LIMIT), Err(Errno::ENOSPC));
}

#[test]
fn of_the_view_only_what_a_header_can_be_is_set() {
    let set = |field: &'static [u8], value: &[u8]| {
        set(&with(&[]), Name::View(field), value, SetXattr::Any)
    };
    let typed = set(b"content-type", b"text/html; charset=utf-8").unwrap();
    assert_eq!(
        typed.content_type.as_deref(),
        Some("text/html; charset=utf-8")
    );
    let cached = set(b"cache-control", b"no-store").unwrap();
    assert_eq!(cached.cache_control.as_deref(), Some("no-store"));
    for value in [&b""[..], b"a\nb", b" x", b"\xff", &[b'x'; 2000]] {
        assert_eq!(set(b"content-type", value), Err(Errno::EINVAL));
    }
    for field in [&b"generation"[..], b"md5", b"storage-class", b"nothing"] {
        assert_eq!(set(field, b"1"), Err(Errno::EPERM));
    }
}

#[test]
fn the_view_is_what_the_service_would_say() {
    let attributes = Attributes {
        content_type: Some("a/b".to_owned()),
        storage_class: Some("NEARLINE".to_owned()),
        ..Attributes::default()
    };
    let object = Object {
        name: ObjectName::parse("o").unwrap(),
        generation: Generation(17),
        metageneration: Metageneration(3),
        size: 0,
        crc32c: Some(0),
        md5: None,
        created: SystemTime::UNIX_EPOCH,
        updated: SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
        component_count: None,
        attributes: Attributes::default(),
    };
    for (field, of_object, of_new) in [
        ("generation", Some("17"), None),
        ("metageneration", Some("3"), None),
        ("crc32c", Some("AAAAAA=="), None),
        ("md5", None, None),
        ("updated", Some("1970-01-01T00:00:01.5Z"), None),
        ("content-type", Some("a/b"), Some("a/b")),
        ("storage-class", Some("NEARLINE"), Some("NEARLINE")),
        ("cache-control", None, None),
        ("nothing", None, None),
    ] {
        for (object, expected) in [(Some(&object), of_object), (None, of_new)] {
            let seen = Seen {
                object,
                attributes: &attributes,
            };
            let got = seen.get(Name::View(field.as_bytes()));
            let expected = expected.ok_or(Errno::ENODATA);
            assert_eq!(
                got,
                expected.map(|text| text.as_bytes().to_vec()),
                "{field}"
            );
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_set_reads_back_and_is_listed(
        name in prop::collection::vec(1_u8.., 1..250),
        value in prop::collection::vec(any::<u8>(), 0..1000),
    ) {
        prop_assume!(!name.starts_with(VIEW));
        let edits = set(&with(&[]), custom(&name), &value, SetXattr::Create).unwrap();
        let attributes = edits.applied(&with(&[]));
        let seen = Seen { object: None, attributes: &attributes };
        prop_assert_eq!(seen.get(custom(&name)), Ok(value));
        prop_assert_eq!(list(&attributes), [USER, &name, b"\0"].concat());
        let mut kept = attributes.metadata.into_iter().flat_map(|(key, value)| [key, value]);
        prop_assert!(kept.all(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~'))));
    }
}
