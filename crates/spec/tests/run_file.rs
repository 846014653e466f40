//! Run files: what is accepted, what is refused, and in which words.

use henge_spec::{Run, Settings, SpecError};

const GOOD: &str = r#"
[model]
layers = 4
hidden = 64
heads = 4
seq_len = 48
vocab_size = 509
[layout]
tensor = 2
pipeline = 2
data = 2
[train]
global_batch = 16
micro_batch = 2
[data]
train = ["corpus"]
"#;

fn resolve(text: &str, overrides: &[&str]) -> Result<Run, SpecError> {
    let mut settings = Settings::parse(text, "run.toml")?;
    overrides.iter().try_for_each(|text| settings.set(text))?;
    Run::resolve(settings)
}

fn refusal(overrides: &[&str]) -> String {
    resolve(GOOD, overrides).expect_err("this run is impossible").to_string()
}

#[test]
fn a_good_file_resolves_with_its_defaults() {
    let run = resolve(GOOD, &[]).unwrap();
    assert_eq!((run.model.ffn_hidden, run.model.head_dim, run.model.kv_heads), (256, 16, 4));
    assert_eq!(run.microbatches(16), 4);
    assert_eq!(run.dir, "runs/run");
    assert_eq!(run.train.optimizer.decay_steps, run.train.steps);
}

#[test]
fn overrides_win_and_say_so() {
    let run = resolve(GOOD, &["train.steps=20", "layout.tensor=4", "run.dir=elsewhere"]).unwrap();
    assert_eq!((run.train.steps, run.layout.tensor, run.dir.as_str()), (20, 4, "elsewhere"));
    assert_eq!(run.place("layout.tensor"), "--set");
    assert_eq!(run.place("layout.pipeline"), "run.toml:10");
}

#[test]
fn defaults_written_out_change_nothing() {
    let neutral =
        ["layout.chunks=1", "model.kv_heads=4", "model.dropout=0.1", "layout.recompute=none", "run.threads=0"];
    assert_eq!(resolve(GOOD, &neutral).unwrap().model, resolve(GOOD, &[]).unwrap().model);
}

#[test]
fn the_resolved_file_resolves_to_the_same_run() {
    let run = resolve(GOOD, &["layout.recompute={ every = 2 }", "train.optimizer.lr=1e-3"]).unwrap();
    let again = Run::resolve(Settings::parse(&run.render(), "config.toml").unwrap()).unwrap();
    assert_eq!((&again.model, &again.layout, &again.train), (&run.model, &run.layout, &run.train));
    assert!(run.render().contains("tensor = 2  # run.toml:9"), "{}", run.render());
    assert!(run.render().contains("seed = 1234  # default"), "{}", run.render());
}

#[test]
fn what_is_derived_resolves_to_the_same_run_in_every_family() {
    let shape = "layers = 2, hidden = 32, heads = 4, seq_len = 16, vocab_size = 99";
    let yarn = "rope = { theta = 5e5, scaling = \"yarn\", factor = 4, original_len = 8 }";
    let dynamic = "rope = { scaling = \"dynamic\", factor = 2, original_len = 16 }";
    let models = [
        format!("model = {{ {shape}, arch = \"llama\", {dynamic} }}"),
        format!("model = {{ {shape}, arch = \"llama\", kv_heads = 2, qkv_bias = true, {yarn} }}"),
        format!("model = {{ {shape}, arch = \"bert\", token_types = 0, norm = \"post\" }}"),
        format!("model = {{ {shape}, arch = \"bert\" }}"),
    ];
    for model in models {
        let text = format!("{model}\ndata = {{ train = [\"a\"], tokenizer = \"t\" }}\n");
        // A rate below the default floor.
        let run = resolve(&text, &["train.optimizer.lr=5e-6"]).unwrap();
        let again = Run::resolve(Settings::parse(&run.render(), "config.toml").unwrap()).unwrap();
        assert_eq!((&again.model, &again.train), (&run.model, &run.train), "{}", run.render());
        assert_eq!(henge_spec::Model::of_facts(&run.model.facts(), "a manifest").unwrap(), run.model, "{model}");
    }
}

#[test]
fn both_forms_of_tables_are_read_alike() {
    let inline = "model = { layers = 2, hidden = 8, heads = 2, seq_len = 4, vocab_size = 9 }\ndata = { train = [\"a\"] }\n\
                  train = { optimizer = { lr = 0.5 }, global_batch = 4 }";
    assert_eq!(resolve(inline, &[]).unwrap().train.optimizer.lr, 0.5);
}

#[test]
fn unknown_keys_name_the_nearest() {
    assert_eq!(refusal(&["train.step=3"]), "--set: unknown key `train.step`; did you mean `train.steps`?");
    let text = GOOD.replace("seq_len", "seqlen");
    let error = resolve(&text, &[]).unwrap_err().to_string();
    assert_eq!(error, "run.toml:6: unknown key `model.seqlen`; did you mean `model.seq_len`?");
    let misplaced = format!("{GOOD}\n[optimizer]\nlr = 1.0\n");
    let error = resolve(&misplaced, &[]).unwrap_err().to_string();
    assert!(error.contains("did you mean `train.optimizer.lr`?"), "{error}");
}

#[test]
fn wrong_types_name_what_is_expected() {
    let error = refusal(&["model.layers=-3"]);
    assert_eq!(error, "--set: `model.layers` must be a whole number of 1 or more, not `-3`");
    assert!(refusal(&["model.dropout=1.0"]).contains("a rate from 0 to below 1"));
    assert!(refusal(&["train.optimizer.lr=nan"]).contains("must be a number"));
    assert!(
        refusal(&["model.hidden=99999999999999"]).contains("below 2^40")
            || refusal(&["model.hidden=99999999999999"]).contains("1 or more")
    );
    assert!(refusal(&["data.split=[1,2]"]).contains("three ratios"));
}

#[test]
fn broken_toml_names_the_line() {
    let error = resolve("[model]\nlayers = = 3\n", &[]).unwrap_err().to_string();
    assert!(error.starts_with("run.toml:2: not valid TOML"), "{error}");
}

#[test]
fn missing_keys_name_the_way_out() {
    let text = GOOD.replace("layers = 4\n", "");
    let error = resolve(&text, &[]).unwrap_err().to_string();
    assert!(error.contains("`model.layers` is missing") && error.contains("model.preset"), "{error}");
}

#[test]
fn every_impossible_combination_names_its_rule() {
    let cases: &[(&[&str], &str)] = &[
        (&["layout.tensor=3"], "`layout.tensor = 3`: model.heads = 4 is not divisible by it"),
        (
            &["layout.tensor=3", "model.heads=6", "model.hidden=66", "model.ffn_hidden=256"],
            "model.ffn_hidden = 256 is not divisible",
        ),
        (&["layout.pipeline=3"], "4 is not divisible by layout.pipeline * layout.chunks = 3"),
        (&["layout.chunks=2"], "schedule \"1f1b\" runs one chunk a rank"),
        (&["layout.chunks=2", "layout.schedule=interleaved", "layout.pipeline=1"], "needs a pipeline of 2 or more"),
        (
            &["layout.chunks=2", "layout.schedule=interleaved", "train.global_batch=12"],
            "3 microbatches are not divisible",
        ),
        (
            &["train.global_batch=10"],
            "`train.global_batch = 10`: 10 is not divisible by train.micro_batch * layout.data = 4",
        ),
        (&["train.ramp_up={start=6,increment=2,samples=100}"], "6 is not divisible by train.micro_batch"),
        (&["train.ramp_up={start=4,increment=5,samples=100}"], "12 is not divisible by growth by"),
        (&["train.ramp_up={start=32,increment=4,samples=100}"], "starts above train.global_batch"),
        (&["model.kv_heads=2"], "gpt has no grouped queries"),
        (&["model.activation=swiglu"], "gpt has one MLP input"),
        (&["model.norm=post"], "gpt norms stand before the layer"),
        (&["model.hidden=66"], "66 is not divisible by model.heads = 4"),
        (&["layout.recompute={ every = 3 }"], "2 is not divisible by layout.recompute.every = 3"),
        (&["layout.schedule=zigzag"], "`zigzag` is not a schedule"),
        (&["data.batches=given.json"], "replaces data.train"),
        (&["data.train=[]"], "there is nothing to train on"),
        (&["train.optimizer.min_lr=1.0"], "above lr"),
        (
            &["data.batches=g.json", "data.train=[]", "train.ramp_up={start=4,increment=4,samples=9}"],
            "given batches have",
        ),
        (&["model.preset=nonesuch"], "no such preset"),
        (&["layout.data=1000000"], "`layout.data = 1000000`: is more than 65536"),
        (&["run.threads=3"], "cannot be shared evenly by 8 ranks"),
        (&["train.ramp_up.increment=4"], "`train.ramp_up.start` is missing"),
        (&["train.ramp_up={start=4,increment=6,samples=9}"], "6 is not divisible by train.micro_batch"),
        (&["train.ramp_up={start=4,increment=4,samples=9}", "train.global_batch=1000000000001"], "is not divisible"),
        (&["train.loss_scale.initial=8"], "only f16 scales its loss"),
        (&["data.valid=[\"v\"]", "data.split=[8,1,1]"], "cuts no corpus into parts"),
        (&["data.valid=[{ prefix = \"v\", weight = 2 }]"], "validation sets have no weights"),
        (&["data.train=[]", "data.batches=g.json"], "`train.global_batch = 16`: given batches have their own sizes"),
        (&["model.dropout=0.999999999999"], "a rate from 0 to below 1"),
        (&["train.optimizer.eps=0"], "must be above 0"),
        (&["data.order=sorted"], "`sorted` is not an order"),
        (&["data.order_samples=9"], "only the megatron order is made for a number of samples"),
        (&["data.order=megatron", "run.seed=4294967296"], "takes 32 bits"),
        (&["data.order=megatron", "data.order_samples=15999"], "the steps of this run take 16000 samples"),
        (&["data.stages=[{ from = 8, train = [\"b\"] }]", "data.order=megatron"], "which knows one blend"),
        (&["data.stages=[{ from = 0, train = [\"b\"] }]"], "the first above 0"),
        (&["data.stages=[{ from = 8, train = [] }]"], "a stage without corpora"),
        (&["data.stages=[{ from_tokens = 7, train = [\"b\"] }]"], "a multiple of model.seq_len"),
        (&["data.stages=[{ from = 8, until = 9, train = [\"b\"] }]"], "must be a list of { from = SAMPLE"),
        (
            &["data.batches=g.json", "data.train=[]", "train.global_batch=64", "data.order=megatron"],
            "in their own order",
        ),
    ];
    for (overrides, words) in cases {
        let error = refusal(overrides);
        assert!(error.contains(words), "{overrides:?}\n  said  {error}\n  wanted {words}");
    }
}

#[test]
fn what_a_run_starts_from_fills_gaps_and_refuses_contradictions() {
    let facts = resolve(GOOD, &["model.dropout=0.0"]).unwrap().model.facts();
    let mut empty = Settings::parse("[data]\ntrain = [\"corpus\"]\n", "run.toml").unwrap();
    empty.adopt(&facts, "weights/config.json").unwrap();
    let run = Run::resolve(empty).unwrap();
    assert_eq!((run.model.layers, run.model.dropout.hidden), (4, 0.0));
    let mut wrong = Settings::parse("[model]\nlayers = 5\n", "run.toml").unwrap();
    let error = wrong.adopt(&facts, "weights/config.json").unwrap_err().to_string();
    assert_eq!(
        error,
        "run.toml:2: `model.layers = 5` contradicts 4 of weights/config.json; remove the key or set it to 4"
    );
    let mut dropout = Settings::parse("[model]\ndropout = 0.2\n[data]\ntrain = [\"c\"]\n", "run.toml").unwrap();
    dropout.adopt(&facts, "weights/config.json").unwrap();
    assert_eq!(Run::resolve(dropout).unwrap().model.dropout.attention, 0.2);
}

#[test]
fn the_later_of_two_ways_to_say_one_thing_counts() {
    let recompute = |overrides: &[&str]| resolve(GOOD, overrides).unwrap().layout.recompute;
    let (none, two) = ("layout.recompute=none", "layout.recompute={ every = 2 }");
    assert_eq!(recompute(&[two, none]), henge_spec::Recompute::None);
    assert_eq!(recompute(&[none, two]), henge_spec::Recompute::Every(2));
}

#[test]
fn stages_count_in_samples_or_tokens_and_come_in_both_forms_of_tables() {
    let stages = "[[data.stages]]\nfrom_tokens = 4800\ntrain = [\"b\"]\n[[data.stages]]\nfrom = 200\n\
                  train = [\"corpus\", { prefix = \"b\", weight = 0.25 }]\n";
    let run = resolve(&format!("{GOOD}{stages}"), &[]).unwrap();
    let [first, second] = &run.data.stages[..] else { panic!("{:?}", run.data.stages) };
    assert_eq!((first.from, &first.train[..]), (100, &[("b".to_string(), 1.0)][..]));
    assert_eq!((second.from, second.train[1].1), (200, 0.25));
    let again = Run::resolve(Settings::parse(&run.render(), "config.toml").unwrap()).unwrap();
    assert_eq!(again.data, run.data);
}

#[test]
fn a_huge_ramp_up_is_checked_without_listing_its_sizes() {
    let run = resolve(GOOD, &["train.global_batch=1000000000000", "train.ramp_up={start=4,increment=4,samples=9}"]);
    assert_eq!(run.unwrap().train.batching.at(0), 4);
}
