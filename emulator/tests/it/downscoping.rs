use std::collections::HashMap;
use std::time::Duration;

use gcsmount_emulator::{Config, Role};
use serde_json::{Value, json};

use crate::client::{
    Answer, Ask, BUCKET, Bench, ask, encode, exchange_form, form, object_path, upload_path,
};

const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

const VIEWER: &str = "roles/storage.objectViewer";
const USER: &str = "roles/storage.objectUser";

/// A bench with an object inside and one outside of the prefix that boundaries here have.
async fn bench() -> Bench {
    let config = Config {
        mutation_limit: None,
        ..Config::default()
    };
    let bench = Bench::with(config).await;
    let admin = bench.admin();
    admin.create_bucket("other").unwrap();
    for (bucket, name) in [(BUCKET, "in/a"), (BUCKET, "out/a"), ("other", "in/a")] {
        admin.put_object(bucket, name, "data".into()).unwrap();
    }
    bench
}

/// A rule as clients write it; `prefix` stands in a literal of the expression as it is.
fn rule(bucket: &str, role: &str, prefix: &str) -> Value {
    let mut rule = json!({
        "availableResource": format!("//storage.googleapis.com/projects/_/buckets/{bucket}"),
        "availablePermissions": [format!("inRole:{role}")],
    });
    if !prefix.is_empty() {
        rule["availabilityCondition"] = json!({"expression": format!(
            "resource.name.startsWith('projects/_/buckets/{bucket}/objects/{prefix}') || \
             api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{prefix}')"
        )});
    }
    rule
}

fn options(rules: &[Value]) -> String {
    json!({"accessBoundary": {"accessBoundaryRules": rules}}).to_string()
}

/// The form of a second exchange, which names no audience.
fn downscoping<'a>(token: &'a str, options: &'a str) -> HashMap<&'a str, &'a str> {
    let mut fields = exchange_form("", token);
    fields.remove("audience");
    fields.remove("scope");
    fields.insert("subject_token_type", ACCESS_TOKEN);
    fields.insert("options", options);
    fields
}

async fn downscope(bench: &Bench, token: &str, options: &str) -> Answer {
    bench.answer(form(&downscoping(token, options))).await
}

/// A token inside rules, of a service account that administers the objects of every bucket.
async fn bounded(bench: &Bench, rules: &[Value]) -> String {
    let whole = bench.access_token("ns", "sa").await;
    let answer = downscope(bench, &whole, &options(rules)).await.expect(200);
    answer.json()["access_token"].as_str().unwrap().to_owned()
}

fn get(path: impl Into<String>) -> Ask {
    ask("GET", path)
}

fn list(prefix: &str) -> Ask {
    get(format!(
        "/storage/v1/b/{BUCKET}/o?prefix={}",
        encode(prefix)
    ))
}

fn resumable(name: &str) -> Ask {
    ask("POST", upload_path(name, "uploadType=resumable"))
}

async fn check(bench: &Bench, token: &str, table: Vec<(&str, Ask, u16)>) {
    for (what, ask, code) in table {
        let answer = bench.answer(ask.bearer(token)).await;
        assert_eq!(answer.code(), code, "{what}: {}", answer.text());
    }
}

#[tokio::test]
async fn reads_stay_inside_bucket_and_prefix() {
    let bench = bench().await;
    let token = bounded(&bench, &[rule(BUCKET, VIEWER, "in/")]).await;
    let layout = |query| get(format!("/storage/v1/b/{BUCKET}/storageLayout?{query}"));
    let create = ask("POST", "/storage/v1/b?project=demo").json(&json!({"name": "mine"}));
    let table = vec![
        ("stat", get(object_path("in/a", "")), 200),
        ("read", get(object_path("in/a", "alt=media")), 200),
        ("stat outside", get(object_path("out/a", "")), 403),
        ("read outside", get(object_path("out/a", "alt=media")), 403),
        ("stat of nothing", get(object_path("in/b", "")), 404),
        (
            "stat of nothing outside",
            get(object_path("out/b", "")),
            403,
        ),
        ("list", list("in/"), 200),
        ("list deeper", list("in/a"), 200),
        ("list a part of the prefix", list("in"), 403),
        ("list everything", list(""), 403),
        ("list outside", list("out/"), 403),
        ("layout", layout("prefix=in/"), 200),
        ("layout of everything", layout(""), 403),
        ("the bucket", get(format!("/storage/v1/b/{BUCKET}")), 403),
        ("buckets", get("/storage/v1/b?project=demo"), 403),
        ("a new bucket", create, 403),
        ("another bucket", get("/storage/v1/b/other/o/in%2Fa"), 403),
        ("its list", get("/storage/v1/b/other/o?prefix=in/"), 403),
        ("xml", get(format!("/{BUCKET}/in/a")), 200),
        ("xml outside", get(format!("/{BUCKET}/out/a")), 403),
        (
            "write",
            ask("POST", upload_path("in/b", "uploadType=media")),
            403,
        ),
        ("delete", ask("DELETE", object_path("in/a", "")), 403),
    ];
    check(&bench, &token, table).await;
    let refused = bench
        .answer(get(object_path("out/a", "")).bearer(&token))
        .await;
    let message = refused.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("/sa/sa does not have storage.objects.get access")
            && message.ends_with("The access boundary of the token leaves it out."),
        "{message}"
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn writes_stay_inside_on_both_ends() {
    let bench = bench().await;
    let token = bounded(&bench, &[rule(BUCKET, USER, "in/")]).await;
    let media = |name| ask("POST", upload_path(name, "uploadType=media")).body("x");
    let related = |name: &str| {
        let body = format!(
            "--B\r\ncontent-type: application/json\r\n\r\n{{\"name\":\"{name}\"}}\r\n--B\r\n\r\nx\r\n--B--"
        );
        ask(
            "POST",
            format!("/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart"),
        )
        .header("content-type", "multipart/related; boundary=B")
        .body(body)
    };
    let compose = |target: &str, source: &str, delete: bool| {
        let path = format!("/storage/v1/b/{BUCKET}/o/{}/compose", encode(target));
        ask("POST", path)
            .json(&json!({"sourceObjects": [{"name": source}], "deleteSourceObjects": delete}))
    };
    let pair = |verb: &str, from: &str, to: &str| {
        let (from, to) = (encode(from), encode(to));
        let to = match verb {
            "moveTo" => format!("o/{to}"),
            _ => format!("b/{BUCKET}/o/{to}"),
        };
        ask(
            "POST",
            format!("/storage/v1/b/{BUCKET}/o/{from}/{verb}/{to}"),
        )
    };
    let elsewhere = format!("/storage/v1/b/{BUCKET}/o/in%2Fa/copyTo/b/other/o/in%2Fb");
    let patch = |name| ask("PATCH", object_path(name, "")).json(&json!({"contentType": "x/y"}));
    let xml = |method, name: &str| ask(method, format!("/{BUCKET}/{name}"));
    let table = vec![
        ("insert", media("in/b"), 200),
        ("replace", media("in/b"), 200),
        ("insert outside", media("out/b"), 403),
        ("replace outside", media("out/a"), 403),
        ("insert just outside", media("in"), 403),
        ("multipart", related("in/c"), 200),
        ("multipart outside", related("out/c"), 403),
        ("resumable", resumable("in/d"), 200),
        ("resumable outside", resumable("out/d"), 403),
        ("compose", compose("in/e", "in/a", false), 200),
        ("compose from outside", compose("in/e", "out/a", false), 403),
        ("compose to outside", compose("out/e", "in/a", false), 403),
        ("copy", pair("copyTo", "in/a", "in/f"), 200),
        ("copy from outside", pair("copyTo", "out/a", "in/f"), 403),
        ("copy to outside", pair("copyTo", "in/a", "out/f"), 403),
        ("copy elsewhere", ask("POST", elsewhere), 403),
        ("rewrite", pair("rewriteTo", "in/a", "in/g"), 200),
        (
            "rewrite from outside",
            pair("rewriteTo", "out/a", "in/g"),
            403,
        ),
        (
            "rewrite to outside",
            pair("rewriteTo", "in/a", "out/g"),
            403,
        ),
        ("move", pair("moveTo", "in/g", "in/h"), 200),
        ("move from outside", pair("moveTo", "out/a", "in/h"), 403),
        ("move to outside", pair("moveTo", "in/h", "out/h"), 403),
        ("patch", patch("in/a"), 200),
        ("patch outside", patch("out/a"), 403),
        ("xml put", xml("PUT", "in/i").body("x"), 200),
        ("xml put outside", xml("PUT", "out/i").body("x"), 403),
        ("xml delete", xml("DELETE", "in/i"), 204),
        ("xml delete outside", xml("DELETE", "out/a"), 403),
        ("delete", ask("DELETE", object_path("in/h", "")), 204),
        (
            "delete outside",
            ask("DELETE", object_path("out/a", "")),
            403,
        ),
        ("compose and delete", compose("in/z", "in/f", true), 200),
    ];
    check(&bench, &token, table).await;
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_batch_is_held_to_the_boundary_call_by_call() {
    let bench = bench().await;
    let token = bounded(&bench, &[rule(BUCKET, USER, "in/")]).await;
    let part = |name| {
        let path = object_path(name, "");
        format!("--B\r\nContent-Type: application/http\r\n\r\nDELETE {path} HTTP/1.1\r\n\r\n\r\n")
    };
    let batch = ask("POST", "/batch/storage/v1")
        .header("content-type", "multipart/mixed; boundary=B")
        .bearer(&token)
        .body(part("out/a") + &part("in/a") + "--B--");
    let text = bench.answer(batch).await.expect(200).text();
    let statuses: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("HTTP/1.1 "))
        .collect();
    assert_eq!(statuses, ["403 Forbidden", "204 No Content"]);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_session_that_was_begun_inside_ends_there() {
    let bench = bench().await;
    let token = bounded(&bench, &[rule(BUCKET, USER, "in/")]).await;
    let started = bench
        .answer(resumable("in/a").bearer(&token))
        .await
        .expect(200);
    let url: http::Uri = started.header("location").unwrap().parse().unwrap();
    let session = url.path_and_query().unwrap().to_string();
    bench
        .answer(ask("PUT", session).body("new"))
        .await
        .expect(200);
    let read = get(object_path("in/a", "alt=media")).bearer(&token);
    assert_eq!(bench.answer(read).await.expect(200).text(), "new");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn what_the_principal_may_not_do_no_boundary_allows() {
    let bench = bench().await;
    let admin = bench.admin();
    let bindings = [(admin.member("ns", "sa"), Role::ObjectViewer)];
    admin.replace_grants(BUCKET, &bindings).unwrap();
    let token = bounded(&bench, &[rule(BUCKET, USER, "")]).await;
    let put = ask("POST", upload_path("in/b", "uploadType=media")).body("x");
    bench
        .answer(get(object_path("in/a", "")).bearer(&token))
        .await
        .expect(200);
    let refused = bench.answer(put.bearer(&token)).await.expect(403);
    assert!(!refused.text().contains("boundary"), "{}", refused.text());
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn permissions_that_are_held_are_those_of_both() {
    let bench = bench().await;
    let test = |token: &str| {
        let names =
            ["get", "list", "create"].map(|name| format!("permissions=storage.objects.{name}"));
        let path = format!(
            "/storage/v1/b/{BUCKET}/iam/testPermissions?{}",
            names.join("&")
        );
        get(path).bearer(token)
    };
    for (rule, held) in [
        (
            rule(BUCKET, VIEWER, ""),
            json!(["storage.objects.get", "storage.objects.list"]),
        ),
        // The bucket itself has no name and no list prefix that begins with another prefix.
        (rule(BUCKET, VIEWER, "in/"), Value::Null),
        (rule("other", USER, ""), Value::Null),
    ] {
        let token = bounded(&bench, &[rule]).await;
        let answer = bench.answer(test(&token)).await.expect(200).json();
        assert_eq!(answer["permissions"], held);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn rules_add_up_and_literals_have_escapes() {
    let bench = bench().await;
    let odd = r"it's\here/";
    bench
        .admin()
        .put_object(BUCKET, &format!("{odd}x"), "x".into())
        .unwrap();
    let rules = [
        rule("other", VIEWER, ""),
        rule(BUCKET, VIEWER, r"it\'s\\here/"),
    ];
    let token = bounded(&bench, &rules).await;
    let table = vec![
        ("odd", get(object_path(&format!("{odd}x"), "")), 200),
        ("odd list", list(odd), 200),
        ("other", get("/storage/v1/b/other/o/in%2Fa"), 200),
        ("neither", get(object_path("in/a", "")), 403),
    ];
    check(&bench, &token, table).await;
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_part_ends_with_the_whole() {
    let bench = bench().await;
    let admin = bench.admin();
    let third = Duration::from_secs(1200);
    admin.set_access_token_ttl(3 * third);
    let whole = bench.access_token("ns", "sa").await;
    admin.advance_clock(third);
    let options = options(&[rule(BUCKET, VIEWER, "")]);
    let answer = downscope(&bench, &whole, &options).await.expect(200).json();
    assert_eq!(answer["issued_token_type"], ACCESS_TOKEN);
    assert_eq!(answer["token_type"], "Bearer");
    // Google tells an end only for a service account's token.
    assert!(answer.get("expires_in").is_none(), "{answer}");
    let token = answer["access_token"].as_str().unwrap();
    let stat = || get(object_path("in/a", "")).bearer(token);
    admin.advance_clock(third);
    bench.answer(stat()).await.expect(200);
    admin.advance_clock(third);
    assert_eq!(bench.answer(stat()).await.expect(401).reason(), "authError");
    let refused = downscope(&bench, &whole, &options).await.expect(400);
    assert_eq!(refused.json()["error"], "invalid_grant");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn what_is_no_downscoping_is_refused_and_counted_as_none() {
    let bench = bench().await;
    let admin = bench.admin();
    let whole = bench.access_token("ns", "sa").await;
    let good = options(&[rule(BUCKET, VIEWER, "in/")]);
    let part = bounded(&bench, &[rule(BUCKET, VIEWER, "in/")]).await;
    admin.reset_counters();
    let eleven = options(&vec![rule(BUCKET, VIEWER, ""); 11]);
    let mut timed = rule(BUCKET, VIEWER, "");
    timed["availabilityCondition"] =
        json!({"expression": "request.time < timestamp('2030-01-01T00:00:00Z')"});
    let timed = options(&[timed]);
    for (token, options, error, part_of_message) in [
        (&*whole, "", "invalid_request", "options"),
        (&*whole, "{}", "invalid_request", "accessBoundary"),
        (
            &*whole,
            r#"{"userProject":"p"}"#,
            "invalid_request",
            "accessBoundary",
        ),
        (&*whole, "[", "invalid_request", "JSON"),
        (&*whole, &*eleven, "invalid_request", "not 11"),
        (
            &*whole,
            &*timed,
            "invalid_request",
            "Supported are resource.name.startsWith",
        ),
        ("nonsense", &*good, "invalid_grant", "not an access token"),
        (&*part, &*good, "invalid_grant", "already"),
        ("", &*good, "invalid_request", "subject_token"),
    ] {
        let answer = downscope(&bench, token, options).await.expect(400).json();
        assert_eq!(answer["error"], error, "{options}: {answer}");
        let message = answer["error_description"].as_str().unwrap();
        assert!(message.contains(part_of_message), "{message}");
        assert!(token.len() < 20 || !message.contains(token));
    }
    let counters = admin.counters();
    assert_eq!(
        (
            counters.exchanges,
            counters.downscopings,
            counters.of("sts.token")
        ),
        (0, 0, 9)
    );
    downscope(&bench, &whole, &good).await.expect(200);
    let counters = admin.counters();
    assert_eq!((counters.exchanges, counters.downscopings), (1, 1));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_first_exchange_takes_a_boundary_too() {
    let bench = bench().await;
    let admin = bench.admin();
    let subject_token = admin.mint_token(&gcsmount_emulator::MintRequest::default());
    let audience = admin.sts_audience();
    let options = options(&[rule(BUCKET, VIEWER, "in/")]);
    let mut fields = exchange_form(&audience, &subject_token);
    fields.insert("options", &options);
    let answer = bench.answer(form(&fields)).await.expect(200).json();
    let token = answer["access_token"].as_str().unwrap();
    bench
        .answer(get(object_path("in/a", "")).bearer(token))
        .await
        .expect(200);
    bench
        .answer(get(object_path("out/a", "")).bearer(token))
        .await
        .expect(403);
    fields.insert("options", r#"{"userProject":"p"}"#);
    bench.answer(form(&fields)).await.expect(200);
    fields.insert("options", "nonsense");
    bench.answer(form(&fields)).await.expect(400);
    bench.emulator.shutdown().await;
}
