//! Layouts, memory and search: rules, the papers' takeaways, words.

use henge_plan::report::{Page, page};
use henge_plan::search::{Candidate, Request, candidates, search};
use henge_plan::simulate::Span;
use henge_plan::{
    Cluster, Jitter, PlanError, Stack, Workload, neighbours, observe, parse_layout, parse_shape, predict, shortfall,
};
use henge_spec::{Layout, Model, Recompute, preset};

fn selene() -> Cluster {
    Cluster::named("dgx-a100").unwrap()
}

fn work<'a>(cluster: &'a Cluster, model: &'a Model, text: &str, batch: usize) -> Workload<'a> {
    let (layout, microbatch) = parse_layout(text).unwrap();
    let layout = Layout { recompute: Recompute::FULL, ..layout };
    Workload { cluster, model, layout, microbatch, batch, switches: Stack::Sc21.switches() }
}

fn best_by(request: &Request, place: fn(&Candidate) -> usize) -> usize {
    let capacity = request.cluster.capacity();
    let all = candidates(request);
    let fitting = all.iter().filter(|candidate| candidate.estimate.memory <= capacity);
    place(fitting.min_by(|a, b| a.estimate.seconds.total_cmp(&b.estimate.seconds)).unwrap())
}

#[test]
fn takeaway_1_tensor_up_to_the_node_then_pipeline() {
    // Figure 13's model on 64 GPUs: nobody tells the search where a node ends.
    let (cluster, model) = (selene(), Model::gpt(32, 20_480, 128, 2048, 51_200));
    let mut request = Request::new(&cluster, &model, 64, 128, Stack::Sc21.switches());
    request.recompute = vec![Recompute::FULL];
    let time = |t: usize| {
        let all = candidates(&request);
        let plain = all.iter().filter(|one| one.layout.tensor == t && one.layout.data == 1 && one.layout.chunks == 1);
        plain.map(|one| one.estimate.seconds).fold(f64::INFINITY, f64::min)
    };
    assert!(time(8) < time(16) && time(16) < time(32));
    assert!(time(8) < time(2), "short pipelines beat long ones inside the node");
    // On nodes of 16 the best tensor size without data parallelism moves up with the node.
    let larger = Cluster { node_devices: 16, cards: 16.0, ..cluster.clone() };
    let wide = work(&larger, &model, "t=16,p=4,d=1,b=1", 128);
    assert!(predict(&wide).unwrap().seconds < time(16));
}

#[test]
fn takeaway_2_model_parallelism_just_large_enough() {
    // 5.9B (figures 14 and 15) fits in one node's share: the rest goes to replicas.
    let (cluster, model) = (selene(), Model::gpt(32, 3840, 32, 2048, 51_200));
    let mut request = Request::new(&cluster, &model, 64, 512, Stack::Sc21.switches());
    request.recompute = vec![Recompute::FULL];
    let best = best_by(&request, |candidate| candidate.layout.tensor * candidate.layout.pipeline);
    assert!(best <= 2, "t x p = {best}");
    let request = Request { batch: 64, ..request };
    assert!(best_by(&request, |candidate| candidate.layout.data) >= 16);
}

#[test]
fn takeaway_3_the_best_microbatch_is_neither_end() {
    // Figure 16: 91B, (t, p) = (8, 8): b = 2 wins at both batches.
    let (cluster, model) = (selene(), Model::gpt(32, 15_360, 128, 2048, 51_200));
    let seconds = |b: usize| predict(&work(&cluster, &model, &format!("t=8,p=8,b={b}"), 512)).unwrap().seconds;
    let times: Vec<f64> = [1, 2, 4, 8].map(seconds).to_vec();
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(best, times[1], "{times:?}");
}

#[test]
fn memory_peaks_match_the_schedules_formulas() {
    let (cluster, model) = (selene(), preset("gpt3-175b").unwrap());
    for (text, batch, expected) in [
        ("t=8,p=12,b=1", 48, (0..12).map(|r| 12 - r).collect::<Vec<usize>>()),
        ("t=8,p=12,b=1", 6, (0..12).map(|r| (12 - r).min(6)).collect()),
        ("t=8,p=12,v=4,b=1", 48, (0..12).map(|r| (2 * (11 - r) + 3 * 12 + 1).min(192)).collect()),
    ] {
        let prediction = predict(&work(&cluster, &model, text, batch)).unwrap();
        let found: Vec<usize> = prediction.memory.iter().map(|memory| memory.in_flight).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn states_are_eighteen_bytes_a_parameter_in_bfloat16() {
    // Figure 1 of arXiv 2205.05198: 45.7 GiB of parameters and optimizer for 175B on 64 GPUs.
    let (cluster, model) = (selene(), preset("gpt3-175b").unwrap());
    let switches = Stack::Act2022.switches();
    let work = Workload { switches, ..work(&cluster, &model, "t=8,p=8,v=3,b=1", 64) };
    let prediction = predict(&work).unwrap();
    let inner = prediction.memory[3];
    let gib = (inner.weights + inner.gradients + inner.optimizer) / f64::from(1 << 30);
    assert!((gib / 45.7 - 1.0).abs() < 0.01, "{gib}");
}

#[test]
fn impossible_layouts_name_the_rule() {
    let (cluster, model) = (selene(), preset("gpt3-175b").unwrap());
    let words = |text: &str, batch: usize| predict(&work(&cluster, &model, text, batch)).unwrap_err().to_string();
    assert!(words("t=7", 8).contains("heads = 96 is not divisible by t = 7"));
    assert!(words("t=8,p=11", 22).contains("96 layers are not divisible by p x v = 11"));
    assert!(words("t=8,p=12,d=5", 12).contains("batch 12 is not divisible by b x d = 5"));
    assert!(words("t=8,p=12,v=2", 18).contains("not divisible by 12"));
    assert!(words("t=0", 18).contains("t is 0"));
    assert!(words("t=8,v=2", 8).contains("2 pipeline ranks"));
    for (text, problem) in [("t=8;p=2", "whole number"), ("q=2", "there is no `q`"), ("t=1,t=2", "twice"), ("t", "`=`")]
    {
        let error = parse_layout(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn shapes_are_read_or_refused() {
    let model = parse_shape("layers=32,hidden=3840,heads=32,seq_len=2048,vocab_size=51200").unwrap();
    assert_eq!(model, Model::gpt(32, 3840, 32, 2048, 51_200));
    let llama = parse_shape("arch=llama,layers=2,hidden=512,heads=8,kv_heads=2,seq_len=128,vocab_size=1000").unwrap();
    assert_eq!((llama.kv_heads, llama.ffn_hidden, llama.tie_embeddings), (2, 1536, false));
    for (text, problem) in [
        ("layers=32", "`hidden` is missing"),
        ("layer=32", "did you mean `layers`"),
        ("layers=0,hidden=8,heads=2,seq_len=2,vocab_size=9", "whole number"),
        ("layers=1,hidden=9,heads=2,seq_len=2,vocab_size=9", "not divisible"),
    ] {
        let error = parse_shape(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_model_that_cannot_fit_says_by_how_much_and_what_helps() {
    let (cluster, model) = (selene(), preset("gpt3-175b").unwrap());
    let mut wide = work(&cluster, &model, "t=8,p=12,b=1", 48);
    wide.layout.recompute = Recompute::None;
    let prediction = predict(&wide).unwrap();
    let words = shortfall(&wide, &prediction).unwrap();
    let missing = prediction.fullest().1 - cluster.capacity();
    assert!(words.contains(&format!("{missing:.0} bytes too many")), "{words}");
    assert!(words.starts_with("stage 0 needs") && words.contains("--recompute full"), "{words}");
    let error = search(&Request::new(&cluster, &model, 8, 64, Stack::Sc21.switches())).unwrap_err();
    let PlanError::DoesNotFit(words) = error else { panic!("{error}") };
    assert!(words.contains("bytes too many") && words.contains("GPUs would hold it"), "{words}");
    let trillion = preset("gpt-1t").unwrap();
    let error = search(&Request::new(&cluster, &trillion, 1, 1, Stack::Sc21.switches())).unwrap_err().to_string();
    assert!(error.contains("GPUs would hold it (t=8, p="), "{error}");
}

#[test]
fn closed_form_is_near_the_simulation_in_time_and_equal_in_memory() {
    let (cluster, model) = (selene(), preset("gpt-145.6b").unwrap());
    let request = Request { simulated: 40, ..Request::new(&cluster, &model, 512, 1536, Stack::Sc21.switches()) };
    for ranked in search(&request).unwrap().best {
        let (estimate, prediction) = (ranked.candidate.estimate, &ranked.prediction);
        let error = estimate.seconds / prediction.seconds - 1.0;
        assert!(error.abs() < 0.03, "{:?}: {error}", ranked.candidate.layout);
        let total = prediction.breakdown.total();
        assert!((total / prediction.seconds - 1.0).abs() < 1e-6, "the breakdown is the step");
    }
}

#[test]
fn memory_without_a_program_is_the_walk_of_every_legal_layout() {
    // Lighter ends (126 layers), a heavy head, every schedule and recomputation; both stacks.
    let cluster = selene();
    let llama = preset("llama3-405b").unwrap();
    let gpt = Model::gpt(12, 1024, 16, 1024, 51_200);
    let mut compared = 0;
    for (model, gpus, batch) in [(&llama, 128, 32), (&gpt, 16, 48)] {
        for stack in [Stack::Sc21, Stack::Modern] {
            let request = Request::new(&cluster, model, gpus, batch, stack.switches());
            for candidate in candidates(&request) {
                let walked = predict(&request.workload(&candidate)).unwrap().fullest().1;
                let error = candidate.estimate.memory / walked - 1.0;
                assert!(error.abs() < 1e-9, "{:?} b={}: {error}", candidate.layout, candidate.microbatch);
                compared += 1;
            }
        }
    }
    assert!(compared > 1000, "{compared} layouts");
}

#[test]
fn fused_attention_has_nothing_to_run_again() {
    let (cluster, model) = (selene(), preset("gpt-7.5b").unwrap());
    let request = Request::new(&cluster, &model, 16, 64, Stack::Modern.switches());
    let selective = |one: &Candidate| one.layout.recompute == Recompute::Selective;
    assert!(!candidates(&request).iter().any(selective), "a twin of no recomputation");
    let asked = Request { recompute: vec![Recompute::Selective], ..request };
    assert!(candidates(&asked).iter().all(selective) && !candidates(&asked).is_empty());
}

#[test]
fn the_best_is_explained_against_its_neighbours() {
    let (cluster, model) = (selene(), Model::gpt(32, 20_480, 128, 2048, 51_200));
    let around = neighbours(&work(&cluster, &model, "t=8,p=8,b=1", 128)).unwrap();
    let wide = around.iter().find(|neighbour| neighbour.change == "t=16, p=4").unwrap();
    assert!(wide.slowdown.unwrap() > 1.1);
    assert!(wide.because.contains("t=16 crosses the node of 8: tensor parallel all-reduces"), "{}", wide.because);
}

#[test]
fn the_page_stands_alone() {
    let (cluster, model) = (selene(), preset("gpt-18.4b").unwrap());
    let request = Request { simulated: 5, ..Request::new(&cluster, &model, 64, 256, Stack::Sc21.switches()) };
    let ranking = search(&request).unwrap();
    let best = request.workload(&ranking.best[0].candidate);
    let mut spans: Vec<Span> = Vec::new();
    observe(&best, &Jitter::NONE, &mut spans).unwrap();
    let around = neighbours(&best).unwrap();
    let contents = Page {
        model: "a <model> & more",
        request: &request,
        ranking: &ranking,
        neighbours: &around,
        candidates: &candidates(&request),
        spans: &spans,
        network: &[(1.0, 2.0), (2.0, 1.5)],
        answers: &["an answer".to_string()],
    };
    let html = page(&contents);
    assert!(html.contains("a &lt;model&gt; &amp; more") && html.contains("an answer"));
    for outside in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    for (open, close) in [("<section>", "</section>"), ("<svg", "</svg>"), ("<div", "</div>"), ("<table", "</table>")] {
        assert_eq!(html.matches(open).count(), html.matches(close).count(), "{open}");
    }
}
