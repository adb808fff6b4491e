use super::*;

/// Flows of two coflows come from a server on this machine, whole, and their ends are told.
#[tokio::test]
async fn flows_come_by_a_connection_each() {
    let (trigger, shutdown) = headwater_api::Shutdown::channel();
    let (told, address) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(async move {
        let ready = |listen| told.send(listen).map_err(|_| AppError::Failed("nobody waits".to_owned()));
        serve("127.0.0.1:0".parse().unwrap(), None, &shutdown, ready).await
    });
    let from = address.await.unwrap().to_string();
    let flow = |partition, bytes| PlannedFlow { from: from.clone(), partition, bytes };
    let coflow = |coflow, flows| PlannedCoflow { coflow, at_ns: u64::from(coflow) * 1_000_000, flows };
    let via = Via::Tcp { congestion: None };
    let coflows = vec![coflow(0, vec![flow(0, 1_000_000), flow(1, 1)]), coflow(3, vec![flow(2, 0)])];
    let mut said = Vec::new();
    let mut say = |fetched| {
        said.push(fetched);
        Ok(())
    };
    fetch(Plan { via, coflows }, &mut say, async || Ok(())).await.unwrap();
    assert_eq!(said[0], Fetched::Ready);
    let ended = |it: &&Fetched| matches!(it, Fetched::Ended { coflow: 0 | 3, .. });
    assert_eq!(said[1..3].iter().filter(ended).count(), 2);
    assert!(matches!(said[3], Fetched::Done { connections: 3, .. }), "{said:?}");
    trigger.set();
    serving.await.unwrap().unwrap();
}

#[test]
fn a_plan_is_what_its_file_says() {
    let text = r#"{"via": {"kind": "tcp", "congestion": "cubic"}, "coflows": [{"coflow": 1, "at_ns": 5, "flows": []}]}"#;
    let plan: Plan = serde_json::from_str(text).unwrap();
    let coflows = vec![PlannedCoflow { coflow: 1, at_ns: 5, flows: Vec::new() }];
    assert_eq!(plan, Plan { via: Via::Tcp { congestion: Some("cubic".to_owned()) }, coflows });
}
