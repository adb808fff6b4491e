//! The report as one HTML page that needs nothing beside it: all pages one behind the other, pictures drawn within.

use std::collections::BTreeMap;

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// How the page looks.
const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { border: 1px solid #d0d7de; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
th { background: #f6f8fa; position: sticky; top: 0; }
td:first-child { white-space: nowrap; }
td.pass { background: #e6f6e9; } td.miss { background: #fde7e7; } td.undecided, td.absent { background: #fff6dc; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
section { border-top: 2px solid #d0d7de; margin-top: 3rem; }
code, pre { background: #f6f8fa; } pre { padding: 0.6rem 1rem; } a { color: #0b5cad; }
";

/// One page of the first page's text and those of the papers, by their names; `pictures` are SVG texts by file name without ending.
pub(super) fn page(first: &str, papers: &[(String, String)], pictures: &BTreeMap<String, String>) -> String {
    let mut body = String::new();
    body += "<main id=\"top\">\n";
    rendered(first, papers, pictures, &mut body);
    for (paper, text) in papers {
        body += &format!("<section id=\"paper-{paper}\">\n");
        rendered(text, papers, pictures, &mut body);
        body += "</section>\n";
    }
    body += "</main>\n";
    for (word, class) in [
        ("pass", "pass"),
        ("<strong>miss</strong>", "miss"),
        ("undecided", "undecided"),
        ("absent", "absent"),
    ] {
        body = body.replace(&format!("<td>{word}"), &format!("<td class=\"{class}\">{word}"));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Reproduction</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n"
    )
}

fn rendered(text: &str, papers: &[(String, String)], pictures: &BTreeMap<String, String>, to: &mut String) {
    // A link to a picture as a file leads nowhere here: it is left out with its text.
    let mut is_left_out = false;
    // Nor does one to another document: its text stays.
    let mut is_text_only = false;
    // An image's title, until its end, is for those that do not see it.
    let mut drawn: Option<&String> = None;
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. }) if dest_url.ends_with(".png") => {
            is_left_out = true;
            None
        }
        Event::End(TagEnd::Link) if is_left_out => {
            is_left_out = false;
            None
        }
        _ if is_left_out => None,
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => match within(&dest_url, papers) {
            Some(dest_url) => Some(Event::Start(Tag::Link { link_type, dest_url, title, id })),
            None => {
                is_text_only = true;
                None
            }
        },
        Event::End(TagEnd::Link) if is_text_only => {
            is_text_only = false;
            None
        }
        Event::Start(Tag::Image { dest_url, .. }) => {
            let name = dest_url.rsplit('/').next().unwrap_or_default().trim_end_matches(".svg");
            drawn = pictures.get(name);
            None
        }
        Event::End(TagEnd::Image) => {
            let svg = drawn.take()?;
            Some(Event::Html(CowStr::from(format!("<figure>{svg}</figure>"))))
        }
        _ if drawn.is_some() => None,
        other => Some(other),
    });
    html::push_html(to, events);
}

/// Where a link between pages leads on the one page; `None` if to a document that is not on it.
fn within(link: &str, papers: &[(String, String)]) -> Option<CowStr<'static>> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let name = file.rsplit('/').next().unwrap_or_default();
    let is_paper = |name: &str| papers.iter().any(|(paper, _)| paper == name);
    match name.strip_suffix(".md") {
        Some(page) if page != "reproduction" && !is_paper(page) => None,
        None if !name.is_empty() => Some(CowStr::from(link.to_owned())),
        _ if !anchor.is_empty() => Some(CowStr::from(format!("#{anchor}"))),
        Some("reproduction") | None => Some(CowStr::from("#top")),
        Some(paper) => Some(CowStr::from(format!("#paper-{paper}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_holds_all_with_links_within_and_pictures_drawn() {
        let first = "# Top\n\n| Row | Verdict |\n|---|---|\n| [P-1](reproduction/ppush.md#ppush-fig1) | **miss**, stale |\n| [x](reproduction/ppush.md) | pass |\n";
        let paper = "# PPUSH\n\n[back](../reproduction.md)\n\n<a id=\"ppush-fig1\"></a>\n\n![Rates](ppush-fig1-1.svg)\n\n[Rates, as PNG](ppush-fig1-1.png)\n\nSee [weights](../push.md#weights).\n";
        let pictures = [("ppush-fig1-1".to_owned(), "<svg>drawn</svg>".to_owned())].into();
        let page = page(first, &[("ppush".into(), paper.into())], &pictures);
        for part in [
            "<a href=\"#ppush-fig1\">P-1</a>",
            "<a href=\"#paper-ppush\">x</a>",
            "<section id=\"paper-ppush\">",
            "<a href=\"#top\">back</a>",
            "<a id=\"ppush-fig1\"></a>",
            "<figure><svg>drawn</svg></figure>",
            "<td class=\"miss\"><strong>miss</strong>, stale</td>",
            "<td class=\"pass\">pass</td>",
            "See weights.",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("png") && !page.contains("Rates"), "{page}");
    }
}
