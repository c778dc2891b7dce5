//! Drivers and kernels that say nothing.

use super::*;

/// A driver that listens and never says anything.
fn silent(scene: &Scene, name: &str) -> UnixListener {
    let volume = scene.base.volume(name);
    fs::create_dir(&volume.dir).unwrap();
    UnixListener::bind(volume.socket()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_says_nothing_delays_no_end() {
    let scene = Scene::new(&[], LIMIT);
    let driver = silent(&scene, "silent");
    driver.set_nonblocking(true).unwrap();
    let dialed = loop {
        match driver.accept() {
            Ok((dialed, _)) => break dialed,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let begun = tokio::time::Instant::now();
    scene.signals.send(()).await.unwrap();
    let outcome = scene.running.await.unwrap();
    assert_eq!(outcome, Outcome::default());
    // By the clock of the test, which stands still unless somebody waits for it.
    assert_eq!(begun.elapsed(), Duration::ZERO);
    drop(dialed);
}

#[tokio::test]
async fn silent_drivers_and_kernels_keep_no_good_volume_from_being_served() {
    let fates = [("good", Fate::ServedAfter(0)), ("unheard", Fate::NoKernel)];
    let scene = Scene::new(&fates, LIMIT);
    let drivers: Vec<_> = (0..100)
        .map(|number| silent(&scene, &format!("a{number:03}")))
        .collect();
    scene.offer("unheard", &[]);
    until("it is to be served", || {
        scene.mounter.attempts("unheard") == 1
    })
    .await;
    scene.offer("good", &[]);
    until("it is served", || scene.served() == 1).await;
    let outcome = scene.end().await;
    assert_eq!((outcome.served, outcome.unsaved.len()), (1, 0));
    drop(drivers);
}
