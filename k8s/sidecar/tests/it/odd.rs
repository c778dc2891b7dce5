//! Sockets and descriptors that are none, and mounts that are gone.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_of_another_device_is_refused_for_good() {
    let scene = Scene::new(&[("b", Fate::ServedAfter(0))], LIMIT);
    for other in ["/dev/zero", "/proc/self/exe", "/proc/self"] {
        let volume = scene.offer_with("b", &[], other);
        until("it is refused", || said(&volume).is_some()).await;
        let text = said(&volume).unwrap();
        assert!(text.contains("not of /dev/fuse"), "{text}");
        assert!(!volume.socket().exists());
        fs::remove_file(volume.error()).unwrap();
    }
    assert_eq!(scene.mounter.attempts("b"), 0);
    scene.offer("b", &[]);
    until("the right one is served", || scene.served() == 1).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_reason_of_a_socket_stays_until_there_is_another_socket() {
    let scene = Scene::new(&[("b", Fate::ServedAfter(0))], LIMIT);
    let volume = scene.base.volume("b");
    fs::create_dir(&volume.dir).unwrap();
    let listener = UnixListener::bind(volume.socket()).unwrap();
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    std::thread::spawn(move || {
        for dial in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            if dial == 0 {
                std::io::Write::write_all(&mut stream, b"hello").unwrap();
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
        // Nobody listens from here on.
    });
    until("it is dialed again", || dials.load(Ordering::SeqCst) == 4).await;
    let text = said(&volume).unwrap();
    assert!(text.contains("begins with byte 0x68"), "{text}");
    fs::remove_file(volume.socket()).unwrap();
    scene.offer("b", &[]);
    until("the new one is served", || scene.served() == 1).await;
    assert_eq!(said(&volume), None);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_socket_is_told_once_and_healed_by_one() {
    let hour = Duration::from_secs(3600);
    let scene = Scene::pausing(&[("b", Fate::ServedAfter(0))], LIMIT, true, hour);
    let volume = scene.base.volume("b");
    fs::create_dir(&volume.dir).unwrap();
    fs::write(volume.socket(), "").unwrap();
    until("it is told of", || said(&volume).is_some()).await;
    assert!(said(&volume).unwrap().contains("not a socket"));
    fs::remove_file(volume.error()).unwrap();
    fs::remove_file(volume.socket()).unwrap();
    fs::create_dir(volume.socket()).unwrap();
    until("the other is told of", || said(&volume).is_some()).await;
    fs::remove_dir(volume.socket()).unwrap();
    scene.offer("b", &[]);
    until("the socket is served", || scene.served() == 1).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_waits_for_its_next_attempt_notices_its_unmount() {
    let hour = Duration::from_secs(3600);
    let fates = [("b", Fate::ServedAfter(usize::MAX))];
    let scene = Scene::pausing(&fates, LIMIT, true, hour);
    // A device that is not mounted polls as one whose mount is gone.
    scene.offer_with("b", &[], "/dev/fuse");
    until("it is tried", || scene.mounter.attempts("b") == 1).await;
    scene.offer("b", &[]);
    until("the next order is tried", || {
        scene.mounter.attempts("b") == 2
    })
    .await;
    scene.end().await;
}
