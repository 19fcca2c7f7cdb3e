use std::path::Path;

use adjoin::{
    Argument, BuildOptions, BuiltIndex, Context, Error, Index as GraphIndex, IndexOptions, Metric, Opened,
    RelayoutReport, Result, Target, VectorSource, format_bytes, format_count, format_number,
};

use super::damage::{BUILD_LEFT, print_damages, unnamed};
use super::memory::{memory_verdict, print_memory};
use super::words::{columns_in_words, kind_of_ids, manifest_as_json};
use crate::Outcome;
use crate::args::{Index, IndexBuild, IndexRelayout};
use crate::print::{percent, print};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn index(command: &Index, stopped: &Stopped) -> Result<Outcome> {
    match command {
        Index::Build(arguments) => build(arguments, stopped),
        Index::Relayout(arguments) => relayout(arguments, stopped),
    }
}

fn build(arguments: &IndexBuild, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let context = resolve::temporary(context, &arguments.temporary)?.or_temporary(Target::parent_of(&arguments.output));
    let options = options(arguments)?;
    // Checked before a store is built from sources, which may take long.
    options.check()?;
    let source = resolve::source_options(&arguments.store.columns)?;
    let metric = arguments.metric;
    let of_store = BuildOptions {
        attributes: arguments.columns.names.clone(),
        ..resolve::build_options(&arguments.store, metric.unwrap_or(Metric::L2))
    };
    let of_builds = metric.map(|metric| Argument::Metric.with(metric)).or(source.only_for_builds(&of_store));
    resolve::check_outputs(&context, &arguments.inputs, &[("-o", &arguments.output)])?;
    // With this, a refusal during the build of the temporary store names a budget that suffices for the index too.
    let later = |source: &dyn VectorSource| options.building_bytes(&context, source, &of_store);
    let opened = Opened::new(&context, &arguments.inputs, &source, &of_store, of_builds, &later)?;
    let built = GraphIndex::build(&context, &opened.store, &arguments.output, &options, arguments.replace.force)?;
    drop(opened);
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        summarize_build(&built, &arguments.output);
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

fn options(arguments: &IndexBuild) -> Result<IndexOptions> {
    let of_shape = resolve::index_options(&arguments.shape, arguments.store.seed.seed)?;
    Ok(IndexOptions { navigation: arguments.navigation, ..of_shape })
}

fn summarize_build(built: &BuiltIndex, output: &Path) {
    let BuiltIndex { manifest, io, load_seconds, graph_seconds, layout_seconds, write_seconds, calibrate_seconds } =
        built;
    eprintln!(
        "{}: {} of {} x {}, {} written in {:.1} s",
        output.display(),
        format_count(manifest.rows, "vector"),
        manifest.vectors.dimensions,
        manifest.vectors.element,
        format_bytes(io.bytes_written),
        load_seconds + graph_seconds + layout_seconds + write_seconds + calibrate_seconds,
    );
    eprintln!(
        "read in {load_seconds:.1} s, graph in {graph_seconds:.1} s, order of pages in {layout_seconds:.1} s, codes and \
         pages in {write_seconds:.1} s, calibrated in {calibrate_seconds:.1} s; {} of a vector's page are neighbors",
        percent(manifest.overlap_ratio)
    );
    eprintln!("{} read of the store, {} to temporary files", format_bytes(io.bytes_read), format_bytes(io.spill_bytes));
}

/// Prints the manifest of an index.
pub(super) fn info(folder: &Path, json: bool) -> Result<Outcome> {
    let index = GraphIndex::open(&resolve::own_context(), folder)?;
    let text = || Ok::<_, Error>(describe(&index) + &columns_in_words(&index.attributes()?));
    print(&if json { manifest_as_json(index.facts())? } else { text()? })?;
    Ok(Outcome::Done)
}

/// Reads every byte of an index.
pub(super) fn verify(context: Context, folder: &Path, quiet: bool) -> Result<Outcome> {
    let report = GraphIndex::verify(&context, folder)?;
    drop(context); // ends the progress bar
    if report.is_sound() {
        if !quiet {
            let (bytes, pages) = (format_bytes(report.bytes_read), format_count(report.pages, "page"));
            let others = unnamed("the index", BUILD_LEFT, &report.leftovers, &report.strangers);
            print(&format!("sound: all checksums match, {bytes} in {pages}; every vector can be reached\n{others}"))?;
        }
        return Ok(Outcome::Done);
    }
    let count = print_damages(&report.damages, report.damage_count);
    Err(Error::corrupt(format!("{} is damaged in {count}; build it again", folder.display())))
}

fn relayout(arguments: &IndexRelayout, stopped: &Stopped) -> Result<Outcome> {
    let IndexRelayout { index, output, replace, resources } = arguments;
    let context = resolve::context(resources, stopped)?;
    let relaid = GraphIndex::relayout(&context, index, output.as_deref(), replace.force)?;
    let memory = context.memory();
    drop(context); // ends the progress bar
    if !resources.quiet.quiet {
        summarize_relayout(&relaid, output.as_ref().unwrap_or(index));
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

fn summarize_relayout(relaid: &RelayoutReport, output: &Path) {
    let RelayoutReport { manifest, bandwidth, bytes_written, layout_seconds, write_seconds, calibrate_seconds } =
        relaid;
    eprintln!("{}: {} written in the order {}", output.display(), format_bytes(*bytes_written), manifest.layout);
    eprintln!(
        "{} of a vector's page are neighbors; the farthest neighbor of a vector is {bandwidth:.0} places away on average",
        percent(manifest.overlap_ratio)
    );
    eprintln!(
        "order of pages in {layout_seconds:.1} s, codes and pages in {write_seconds:.1} s, calibrated in \
         {calibrate_seconds:.1} s"
    );
}

fn describe(index: &GraphIndex) -> String {
    let facts = index.facts();
    let lines = [
        format!(
            "vectors      {} of {} x {}, {} of them different",
            format_number(facts.rows),
            facts.vectors.dimensions,
            facts.vectors.element,
            format_number(facts.vertices.into())
        ),
        format!("ids          {}", kind_of_ids(facts.ids)),
        format!("metric       {}", facts.metric),
        format!(
            "graph        {}: {} neighbors at most, of {} candidates, alpha {}",
            facts.method, facts.degree, facts.build_list, facts.alpha
        ),
        format!(
            "pages        of {}, in the order {}; {} of a vector's page are neighbors",
            format_bytes(facts.page_bytes),
            facts.layout,
            percent(facts.overlap_ratio)
        ),
        format!("codes        {} of a vector, in memory", format_count(facts.code_bytes as u64, "byte")),
        format!("seed         {}", facts.seed),
    ];
    lines.map(|line| line + "\n").concat()
}
