//! `adjoin flash`, the model of flash devices: replays of traces, searches, sweeps, charts, and refusals.

use serde_json::{Value, json as value};

use crate::place::Place;
use crate::report::data;

/// Creates vectors, queries that are similar to them, and traces of a join, of searches of an index and of searches
/// of buckets.
fn workloads() -> Place {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 16 --element u8 -o set.u8bin --quiet");
    place.done("gen --rows 60 --dimensions 16 --element u8 --seed 2 -o queries.u8bin --quiet");
    place
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn traces_of_every_command_replay_on_every_device() {
    let place = workloads();
    place.done("build set.u8bin -o store --quiet");
    place.done("join store --eps 20 --trace join.trace --quiet -o pairs.csv");
    place.done("search store --queries queries.u8bin -k 5 --nprobe 4 --trace buckets.trace --quiet -o hits.csv");
    place.done("index build store -o index --quiet");
    place.done("search index --queries queries.u8bin -k 5 --list 20 --trace graph.trace --quiet -o near.csv");
    for trace in ["join", "buckets", "graph"] {
        let reads = place.text(&format!("{trace}.trace")).lines().filter(|line| line.starts_with("read ")).count();
        for model in ["ndsearch", "mqsim", "femu-tlc", "z-nand", "virtual-disk"] {
            let figures = json(&place.done(&format!("flash run --trace {trace}.trace --model {model} --quiet")).out);
            assert_eq!(figures["reads"], reads, "{trace} {model}");
            assert!(figures["seconds"].as_f64().unwrap() > 0.0);
        }
        let inside = format!("flash run --trace {trace}.trace --platform ndsearch --comparisons 4 --quiet");
        let (inside, again) = (place.done(&inside).out, place.done(&inside).out);
        assert_eq!(inside, again);
        assert_eq!(json(&inside)["counts"]["link_bytes"], 0, "pages stay in the device");
    }
    let seconds = |options: &str| {
        json(&place.done(&format!("flash run --trace buckets.trace --model z-nand {options}")).out)["seconds"].as_f64()
    };
    assert!(seconds("--quiet --as-timed") > seconds("--quiet"), "reads come later where they came later");
    place.refused("flash run --as-timed set.u8bin", &["--trace"]);
    place.write("broken.trace", b"adjoin-trace 2\nfile 0 a\nread 0 0 4096 1 1 ok join 1 -\nread 0 0");
    place.refused("flash run --trace broken.trace", &["broken.trace: line 4 of the trace: it is incomplete"]);
}

#[test]
fn simulates_searches_on_every_platform_and_draws_them() {
    let place = workloads();
    let usual = "set.u8bin --queries queries.u8bin --list 20 --batch 32 --quiet";
    let processors = ["cpu", "cpu-dram", "cpu-shards", "gpu", "gpu-shards"];
    let accelerators = ["smartssd", "deepstore-channel", "deepstore-chip", "ndsearch"];
    for platform in processors.into_iter().chain(accelerators) {
        let figures = json(&place.done(&format!("flash run {usual} --platform {platform}")).out);
        assert_eq!((&figures["platform"], &figures["queries"]), (&Value::from(platform), &Value::from(60)));
        assert!(figures["joules"]["total"].as_f64().unwrap() > 0.0);
    }
    let layers = json(&place.done(&format!("flash run {usual} --graph hnsw")).out);
    assert!(layers["distances_in_memory"].as_u64() > Some(0), "the layers above are in memory: {layers}");
    place.done(&format!("flash run {usual} --perfetto drawn.json -o figures.csv"));
    let drawn = json(&place.text("drawn.json"));
    let named = |name: &str| drawn.as_array().unwrap().iter().any(|event| event["args"]["name"] == name);
    assert!(named("LUN 0") && named("channel 0") && named("batch"), "{drawn}");
    assert!(place.text("figures.csv").starts_with("busy.") && place.text("figures.csv").lines().count() == 2);
    place.refused(&format!("flash run {usual} -o figures.csv"), &["figures.csv exists already; give --force"]);
}

#[test]
fn flash_run_refuses_to_overwrite_inputs_and_accepts_large_numbers() {
    let place = workloads();
    let searched = "set.u8bin --queries queries.u8bin --list 20 --force --quiet";
    let trace = |at: &str| format!("adjoin-trace 2\nfile 0 a\nread 0 0 4096 {at} 1 ok - - -\n");
    place.write("join.trace", trace("0").as_bytes());
    for (line, words) in [
        (format!("flash run {searched} -o set.u8bin"), &["set.u8bin is an input, so -o cannot write"][..]),
        (format!("flash run {searched} --perfetto queries.u8bin"), &["queries.u8bin is an input, so --perfetto"]),
        (format!("flash run {searched} -o x.json --perfetto x.json"), &["x.json cannot be both -o and --perfetto"]),
        ("flash run --trace join.trace -o join.trace --force".into(), &["join.trace is an input"]),
        ("flash calibrate . --replay join.trace -o join.trace --force".into(), &["join.trace is an input"]),
        ("flash calibrate . --size 900TB -o disk.toml".into(), &["--size 900TB", "free"]),
        ("flash run --trace join.trace --comparisons 1000000000000".into(), &["--comparisons", "from 0 to 1000000"]),
        ("flash run --trace join.trace --depth 1152921504606846976".into(), &["--depth", "from 1 to 1048576"]),
        ("flash sweep --trace join.trace --over depth=1,0".into(), &["0 is not a value of depth", "from 1 to"]),
        ("flash run set.u8bin --queries queries.u8bin --list 1000000000000".into(), &["--list", "from 1 to"]),
    ] {
        place.refused(&line, words);
    }
    place.write("late.trace", trace("9223372036854775807").as_bytes());
    place.done("flash run --trace late.trace --as-timed --quiet");
}

#[test]
fn flash_pages_show_the_figures_of_each_run() {
    let place = workloads();
    let usual = "set.u8bin --queries queries.u8bin --list 20 --quiet";
    place.done(&format!("flash run {usual} -o figures.json"));
    place.done(&format!("flash run {usual} -o one.html"));
    place.done(&format!("flash sweep {usual} --over platform=cpu,ndsearch -o two.html"));
    let (one, two) = (data(&place, "one.html"), data(&place, "two.html"));
    assert_eq!((&one["over"], &one["figures"]), (&Value::Null, &value!([json(&place.text("figures.json"))])));
    assert_eq!((&two["over"], &two["values"]), (&value!("platform"), &value!(["cpu", "ndsearch"])));
    assert_eq!(two["figures"][1], one["figures"][0]);
    assert!(!place.text("two.html").contains("{{"), "each place on the page is filled");
    place.refused(&format!("flash run {usual} -o one.html"), &["one.html exists already; give --force"]);
}

#[test]
fn flash_sweep_prints_a_line_per_value() {
    let place = workloads();
    let usual = "flash sweep set.u8bin --queries queries.u8bin --list 20 --quiet";
    let swept = place.done(&format!("{usual} --over timing.read=5,40,106")).out;
    let lines: Vec<&str> = swept.lines().collect();
    assert_eq!(lines.len(), 4);
    let column = lines[0].split(',').position(|name| name == "seconds").unwrap();
    let seconds: Vec<f64> =
        lines[1..].iter().map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect();
    assert!(seconds[0] < seconds[1] && seconds[1] < seconds[2], "{seconds:?}");
    place.done(&format!("{usual} --over platform=cpu,ndsearch"));
    place.refused(&format!("{usual} --over batch=x"), &["--over batch=x: x is not a value of batch"]);
    place.refused(&format!("{usual} --over timing.reed=3"), &["timing.reed is not a figure", "timing.read"]);
}

#[test]
fn refuses_invalid_devices_in_one_line() {
    let place = workloads();
    let with = |figure: &str| format!("flash run set.u8bin --queries queries.u8bin --set {figure}");
    place.refused(
        &with("geometry.planes_per_lun=0"),
        &["geometry.planes_per_lun is 0 count; give a whole number from 1"],
    );
    place.refused(&with("timing.reed=1"), &["--set timing.reed=1", "the figures are timing.read"]);
    place.refused(&with("timing.read"), &["--set timing.read: give FIGURE=VALUE"]);
    place.refused(
        "flash run set.u8bin --queries queries.u8bin --set geometry.channels=1 --set geometry.chips_per_channel=1 --set \
         geometry.luns_per_chip=1 --set geometry.planes_per_lun=1 --set geometry.blocks_per_plane=1 --set \
         geometry.pages_per_block=1",
        &["the data take", "the device holds 16384; give more geometry.blocks_per_plane"],
    );
    place.done("gen --rows 9 --dimensions 600 -o long.fbin --quiet");
    place.refused(
        "flash run long.fbin --queries long.fbin --set geometry.page=1024 --set controller.sector=512",
        &["a vector takes 2400 bytes, but a page of the device has 1024"],
    );
    place.refused("flash run set.u8bin --queries long.fbin", &["give queries of the same dimensions"]);
    place.refused("flash run", &["nothing to run; give vectors and --queries, or --trace"]);
    place.write("device.toml", b"like = \"ndsearch\"\n[timing]\nread = { value = 3, unit = \"us\" }\n");
    place.refused("flash run --trace none --model device.toml", &["device.toml: timing.read has no source"]);
    place.refused("flash run --trace none --model nothing", &["neither a file nor a known device", "z-nand"]);
    place.refused("flash run --trace none", &["cannot read none"]);
}
