use gcsmount_emulator::{Auth, BucketSettings, Config, ErrorKind, Role};
use serde_json::{Value, json};

use crate::client::{Ask, BUCKET, Bench, ask, exchange_form, form, object_path, upload_path};

/// Requests of every kind to [`BUCKET`], each of which does something while it is an ordinary one.
fn asks(query: &str) -> Vec<Ask> {
    let bucket = format!("/storage/v1/b/{BUCKET}");
    let compose = json!({"sourceObjects": [{"name": "a"}]});
    vec![
        ask("GET", object_path("a", query)),
        ask("GET", object_path("a", &format!("alt=media&{query}"))),
        ask("GET", format!("{bucket}/o?{query}")),
        ask("GET", format!("{bucket}/storageLayout?{query}")),
        ask(
            "GET",
            format!("{bucket}/iam/testPermissions?permissions=storage.objects.get&{query}"),
        ),
        ask(
            "POST",
            upload_path("b", &format!("uploadType=media&{query}")),
        )
        .body("x"),
        ask(
            "POST",
            upload_path("b", &format!("uploadType=resumable&{query}")),
        ),
        ask("PATCH", object_path("a", query)).json(&json!({"contentType": "x/y"})),
        ask("POST", format!("{bucket}/o/c/compose?{query}")).json(&compose),
        ask(
            "POST",
            format!("{bucket}/o/a/copyTo/b/{BUCKET}/o/d?{query}"),
        ),
        ask(
            "POST",
            format!("/storage/v1/b/other/o/a/rewriteTo/b/{BUCKET}/o/e?{query}"),
        ),
        ask("POST", format!("{bucket}/o/d/moveTo/o/f?{query}")),
        ask("DELETE", object_path("f", query)),
        ask("GET", format!("/{BUCKET}/a?{query}")),
    ]
}

async fn bench(auth: Auth) -> Bench {
    let config = Config {
        auth,
        mutation_limit: None,
        ..Config::default()
    };
    let bench = Bench::with(config).await;
    let admin = bench.admin();
    admin.create_bucket("other").unwrap();
    for bucket in [BUCKET, "other"] {
        admin.put_object(bucket, "a", "data".into()).unwrap();
    }
    bench
}

#[tokio::test]
async fn whoever_names_no_project_gets_nothing_of_a_bucket_whose_requester_pays() {
    let bench = bench(Auth::Off).await;
    let settings = BucketSettings {
        requester_pays: true,
        ..BucketSettings::default()
    };
    bench.admin().set_bucket(BUCKET, settings).unwrap();
    for (index, ask) in asks("").into_iter().enumerate() {
        let answer = bench.answer(ask).await;
        assert_eq!(answer.code(), 400, "{index}: {}", answer.text());
        assert!(
            answer.text().contains("no user project provided"),
            "{}",
            answer.text()
        );
    }
    let json = bench
        .answer(ask("GET", object_path("a", "userProject=")))
        .await;
    assert_eq!(json.expect(400).reason(), "required");
    let xml = bench.answer(ask("GET", format!("/{BUCKET}/a"))).await;
    assert!(
        xml.expect(400)
            .text()
            .contains("<Code>UserProjectMissing</Code>")
    );
    for (index, ask) in asks("userProject=p").into_iter().enumerate() {
        let answer = bench.answer(ask).await;
        assert!(answer.status.is_success(), "{index}: {}", answer.text());
    }
    for ask in asks("").into_iter().take(6) {
        let answer = bench.answer(ask.header("x-goog-user-project", "p")).await;
        assert!(answer.status.is_success(), "{}", answer.text());
    }
    bench
        .answer(ask("GET", "/storage/v1/b/other/o"))
        .await
        .expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn federated_principals_need_uniform_access_and_others_do_not() {
    let bench = bench(Auth::Required).await;
    let admin = bench.admin();
    let endpoint = bench.emulator.endpoint();
    admin
        .grant(BUCKET, "user:a@b.example", Role::ObjectAdmin)
        .unwrap();
    admin
        .grant("other", "user:a@b.example", Role::ObjectAdmin)
        .unwrap();
    let login = admin
        .mint_authorized_user("user:a@b.example", &endpoint)
        .unwrap();
    let login: Value = serde_json::from_str(&login).unwrap();
    let field = |name: &str| login[name].as_str().unwrap().to_owned();
    let refresh = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "refresh_token")
        .append_pair("client_id", &field("client_id"))
        .append_pair("client_secret", &field("client_secret"))
        .append_pair("refresh_token", &field("refresh_token"))
        .finish();
    let refresh = ask("POST", "/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(refresh);
    let person = bench.answer(refresh).await.expect(200).json();
    let person = person["access_token"].as_str().unwrap();
    let options = json!({"accessBoundary": {"accessBoundaryRules": [{
        "availableResource": format!("//storage.googleapis.com/projects/_/buckets/{BUCKET}"),
        "availablePermissions": ["inRole:roles/storage.objectAdmin"],
    }]}})
    .to_string();
    let mut fields = exchange_form("x", person);
    fields.insert(
        "subject_token_type",
        "urn:ietf:params:oauth:token-type:access_token",
    );
    fields.insert("options", &options);
    let bounded = bench.answer(form(&fields)).await.expect(200).json();
    let bounded = bounded["access_token"].as_str().unwrap();
    let workload = bench.access_token("ns", "sa").await;
    let settings = BucketSettings {
        uniform_access: false,
        ..BucketSettings::default()
    };
    bench.admin().set_bucket(BUCKET, settings).unwrap();
    for ask in asks("") {
        let answer = bench.answer(ask.bearer(&workload)).await.expect(412);
        let message = answer.text();
        assert!(
            message.contains("requires that Uniform Bucket Level Access be enabled"),
            "{message}"
        );
    }
    let stat = || ask("GET", object_path("a", ""));
    let refused = bench.answer(stat().bearer(bounded)).await.expect(412);
    assert_eq!(refused.reason(), "conditionNotMet");
    for (index, ask) in asks("").into_iter().enumerate() {
        let answer = bench.answer(ask.bearer(person)).await;
        assert!(answer.status.is_success(), "{index}: {}", answer.text());
    }
    bench
        .admin()
        .set_bucket(BUCKET, BucketSettings::default())
        .unwrap();
    bench.answer(stat().bearer(&workload)).await.expect(200);
    bench.answer(stat().bearer(bounded)).await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn settings_are_set_over_http_and_told_by_the_bucket() {
    let bench = bench(Auth::Off).await;
    let told = async |name: &str| {
        let get = ask("GET", format!("/storage/v1/b/{name}?userProject=p"));
        let bucket = bench.answer(get).await.expect(200).json();
        let uniform = &bucket["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"];
        let pays = &bucket["billing"]["requesterPays"];
        let metageneration = bucket["metageneration"].as_str().unwrap().to_owned();
        (
            uniform.as_bool().unwrap(),
            pays.as_bool().unwrap(),
            metageneration,
        )
    };
    assert_eq!(told(BUCKET).await, (true, false, "1".to_owned()));
    let path = format!("/_emulator/buckets/{BUCKET}/settings");
    let put = |path: &str, body: Value| ask("PUT", path).json(&body);
    let both = json!({"uniform_access": false, "requester_pays": true});
    bench.answer(put(&path, both)).await.expect(200);
    assert_eq!(told(BUCKET).await, (false, true, "2".to_owned()));
    bench.answer(put(&path, json!({}))).await.expect(200);
    assert_eq!(told(BUCKET).await, (true, false, "3".to_owned()));
    bench
        .answer(put(&path, json!({"uniform": false})))
        .await
        .expect(400);
    let nowhere = "/_emulator/buckets/nobucket/settings";
    bench.answer(put(nowhere, json!({}))).await.expect(404);
    let missing = bench
        .admin()
        .set_bucket("nobucket", BucketSettings::default());
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    let create = |body: Value| ask("POST", "/storage/v1/b?project=demo").json(&body);
    let resource = json!({
        "name": "fine",
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": false}},
        "billing": {"requesterPays": true},
    });
    bench.answer(create(resource)).await.expect(200);
    assert_eq!(told("fine").await, (false, true, "1".to_owned()));
    let odd = json!({"name": "odd", "billing": {"requesterPays": "yes"}});
    bench.answer(create(odd)).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_bucket_keeps_labels_and_the_hold_of_new_objects_and_refuses_what_it_would_forget() {
    let bench = bench(Auth::Off).await;
    let path = format!("/storage/v1/b/{BUCKET}");
    let patch = |body| ask("PATCH", path.clone()).json(&body);
    let set = json!({"labels": {"a": "1", "b": "2"}, "defaultEventBasedHold": true, "storageClass": "NEARLINE"});
    bench.answer(patch(set)).await.expect(200);
    let lifecycle = json!({"labels": {"a": "9"}, "lifecycle": {"rule": [{}]}});
    let refused = bench.answer(patch(lifecycle)).await.expect(501);
    assert_eq!(refused.reason(), "notImplemented");
    assert!(refused.text().contains("lifecycle"), "{}", refused.text());
    let labels = json!({"labels": {"b": null}});
    bench.answer(patch(labels)).await.expect(200);
    let told = bench.answer(ask("GET", path.clone())).await.expect(200);
    let told = told.json();
    assert_eq!(told["labels"], json!({"a": "1"}));
    assert_eq!(told["storageClass"], "NEARLINE");
    assert_eq!(told["defaultEventBasedHold"], true);
    // What it tells can be sent back.
    bench.answer(patch(told)).await.expect(200);
    let put = |name| ask("PUT", format!("/{BUCKET}/{name}")).body("new");
    bench.answer(put("held")).await.expect(200);
    let held = bench.answer(ask("GET", object_path("held", ""))).await;
    assert_eq!(held.expect(200).json()["eventBasedHold"], true);
    bench.answer(put("held")).await.expect(403);
    bench.answer(put("a")).await.expect(200);
    let unheld = json!({"defaultEventBasedHold": false});
    bench.answer(patch(unheld)).await.expect(200);
    bench.answer(put("free")).await.expect(200);
    bench.answer(put("free")).await.expect(200);
    let new = |body| ask("POST", "/storage/v1/b?project=p").json(&body);
    let cors = json!({"name": "fresh", "cors": [{"origin": ["*"]}]});
    bench.answer(new(cors)).await.expect(501);
    bench
        .answer(ask("GET", "/storage/v1/b/fresh"))
        .await
        .expect(404);
    let labelled = json!({"name": "fresh", "labels": {"x": "y"}, "location": "EU"});
    let made = bench.answer(new(labelled)).await.expect(200).json();
    assert_eq!(made["labels"], json!({"x": "y"}));
    bench.emulator.shutdown().await;
}
