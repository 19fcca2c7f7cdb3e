//! HTML pages in one file, which contains style, scripts and data, so that a page needs no network.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// HTML section of a page next to its cards and charts, and the script that fills it.
pub(crate) struct Drawn {
    pub(crate) section: &'static str,
    pub(crate) script: &'static str,
}

/// Writes a page whose script finds `data` as `page.data`.
///
/// # Errors
/// If `out` cannot be written.
pub(crate) fn write_html(out: &mut dyn Write, drawn: &Drawn, data: &impl Serialize) -> io::Result<()> {
    let parts = [
        ("{{chart_style}}", include_str!("../../assets/uplot.min.css")),
        ("{{style}}", include_str!("../../assets/page.css")),
        ("{{section}}", drawn.section),
        ("{{chart_script}}", include_str!("../../assets/uplot.min.js")),
        ("{{page_script}}", include_str!("../../assets/page.js")),
        ("{{script}}", drawn.script),
    ];
    let template = include_str!("../../assets/page.html").to_owned();
    let page = parts.iter().fold(template, |page, (place, part)| page.replacen(place, part, 1));
    // The data may be large, so it is written piece by piece and never held as a text.
    let (before, after) = page.split_once("{{data}}").expect("the page has a place for its data");
    out.write_all(before.as_bytes())?;
    let mut element = BufWriter::new(InElement(&mut *out));
    serde_json::to_writer(&mut element, data)?;
    element.flush()?;
    drop(element);
    out.write_all(after.as_bytes())
}

/// Escapes JSON so that no text in it closes the HTML element around it.
struct InElement<'a>(&'a mut dyn Write);

impl Write for InElement<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // In JSON, `<` occurs only within strings, where this escape has the same meaning.
        for (k, part) in bytes.split(|&byte| byte == b'<').enumerate() {
            if k > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
