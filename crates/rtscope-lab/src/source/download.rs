//! A file from a URL: resumed where an earlier attempt stopped, checked before it counts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cache::Cache,
    digest::sha256_of_file,
    error::LabError,
    progress::{Report, step},
    source::version::Version,
    tool::{self, Need},
};

/// Seconds without a byte after which a download is abandoned.
pub(super) const STALLED_AFTER_S: &str = "60";

/// Brings a file or a URL into the cache, under its own name. What is there with the right checksum is
/// not fetched again; a part of it is completed.
///
/// # Errors
///
/// No program to download with, the download fails, or the checksum is another one.
pub(super) fn bring(
    from: &str,
    sha256: Option<&str>,
    cache: &Cache,
    report: &mut Report<'_>,
) -> Result<PathBuf, LabError> {
    if !from.contains("://") {
        let path = PathBuf::from(from);
        let there = path.metadata().map_err(LabError::file("read", &path))?;
        if !there.is_file() {
            return Err(LabError::Refused(format!("{from} is not a file")));
        }
        return check(&path, sha256).map(|()| path);
    }
    let name = from.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("download");
    // Files of two servers may have one name; their checksums differ.
    let prefix = sha256.map_or(String::new(), |sum| format!("{}-", &sum[..8]));
    let folder = &cache.downloads();
    let path = folder.join(format!("{prefix}{name}"));
    // Two processes that completed the same partial file would corrupt it.
    let _lock = cache.lock(&format!("{prefix}{name}"), report)?;
    if path.is_file() && check(&path, sha256).is_ok() {
        return Ok(path);
    }
    fs::create_dir_all(folder).map_err(LabError::file("make", folder))?;
    let part = folder.join(format!("{prefix}{name}.part"));
    let resumed = part.metadata().map_or(0, |there| there.len());
    let how = if resumed > 0 { format!(" from byte {resumed} on") } else { String::new() };
    step(report, format!("downloading {name}{how}"));
    match complete(from, &part, report).and_then(|()| check(&part, sha256)) {
        // What was resumed may have changed on the server since: once more, from the start.
        Err(error) if resumed > 0 && is_other(&error) => {
            step(report, format!("downloading {name} again, from the start"));
            fs::remove_file(&part).map_err(LabError::file("remove", &part))?;
            complete(from, &part, report)?;
            check(&part, sha256)?;
        }
        Err(error) => return Err(explained(error, from)),
        Ok(()) => {}
    }
    fs::rename(&part, &path).map_err(LabError::file("rename", &part))?;
    Ok(path)
}

/// Whether what was resumed is no beginning of what the server has: another checksum, or the server refuses to go on from
/// there (curl's exit codes 33 and 36, status 416).
fn is_other(error: &LabError) -> bool {
    match error {
        LabError::Checksum { .. } => true,
        LabError::Program { status, said, .. } => {
            status.ends_with(": 33") || status.ends_with(": 36") || said.contains("416")
        }
        _ => false,
    }
}

fn complete(from: &str, part: &Path, report: &mut Report<'_>) -> Result<(), LabError> {
    let mut command = if tool::find("curl").is_some() {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--location", "--silent", "--show-error", "--retry", "3"]);
        curl.args(["--connect-timeout", STALLED_AFTER_S, "--speed-limit", "1"]);
        curl.args(["--speed-time", STALLED_AFTER_S]);
        curl.args(["--continue-at", "-", "--output"]).arg(part).arg(from);
        curl
    } else if tool::find("wget").is_some() {
        let mut wget = Command::new("wget");
        wget.args([
            "--no-verbose",
            "--tries=3",
            "--timeout",
            STALLED_AFTER_S,
            "--continue",
            "--output-document",
        ]);
        wget.arg(part).arg(from);
        wget
    } else {
        return tool::require(&[Need::of("curl", "curl")]);
    };
    tool::fetching(&mut command, || part.metadata().map_or(0, |there| there.len()), report)
}

/// A server that doesn't have the file: what it has instead. Real-time patches move to `older/` when the next
/// one comes.
fn explained(error: LabError, from: &str) -> LabError {
    let is_absence = matches!(&error, LabError::Program { said, .. } if said.contains("404"));
    let (true, Some((folder, name))) = (is_absence, from.rsplit_once('/')) else { return error };
    let older = format!("{folder}/older");
    let mut there: Vec<String> = Vec::new();
    for folder in [folder, older.as_str()] {
        there.extend(listing(folder).into_iter().map(|file| format!("{folder}/{file}")));
    }
    let file_of = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
    let missing = format!("{from} doesn't exist (the server answers 404)");
    LabError::Refused(match there.iter().find(|url| file_of(url) == name) {
        Some(url) => format!("{missing}; the file has moved: use {url}"),
        None => match nearest(name, &there) {
            Some(url) => format!(
                "{missing}, and neither does {older}/{name}; the nearest version there is {url}"
            ),
            None => {
                format!("{missing}, and rtscope found no similar file in {folder}/ and {older}/")
            }
        },
    })
}

/// The files that a folder's page on a server names; none where it has no such page.
fn listing(folder: &str) -> Vec<String> {
    let mut command = if tool::find("curl").is_some() {
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--location", "--silent", "--max-time", "20"]);
        curl
    } else {
        let mut wget = Command::new("wget");
        wget.args(["--quiet", "--tries=1", "--timeout=20", "--output-document=-"]);
        wget
    };
    let page = tool::output(command.arg(format!("{folder}/"))).unwrap_or_default();
    let names = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    names.filter(|name| !name.contains('/') && !name.starts_with('?')).map(str::to_owned).collect()
}

/// The file of another version that comes closest to a name: the same series and the nearest update, packed in
/// the same way if there is one.
fn nearest<'a>(name: &str, there: &'a [String]) -> Option<&'a String> {
    let wanted = Version::find(name)?;
    let kind = |name: &str| name.chars().take_while(|c| !c.is_ascii_digit()).collect::<String>();
    let packing = |name: &str| name.rsplit('.').next().map(str::to_owned);
    let near = there.iter().filter_map(|url| {
        let file = url.rsplit('/').next()?;
        let found = Version::find(file)?;
        let fits = (found.major, found.minor) == (wanted.major, wanted.minor);
        let is_packed = matches!(packing(file)?.as_str(), "gz" | "xz" | "patch" | "bz2");
        let rank = (found.sublevel.abs_diff(wanted.sublevel), packing(file) != packing(name));
        (fits && is_packed && kind(file) == kind(name)).then_some((rank, url))
    });
    near.min_by_key(|(rank, _)| *rank).map(|(_, url)| url)
}

fn check(path: &Path, sha256: Option<&str>) -> Result<(), LabError> {
    let Some(asked) = sha256 else { return Ok(()) };
    let found = sha256_of_file(path).map_err(LabError::file("read", path))?;
    if found.eq_ignore_ascii_case(asked) {
        return Ok(());
    }
    Err(LabError::Checksum { path: path.to_owned(), asked: asked.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// A server of one file that knows ranges, and notes what was asked of it.
    fn serve(body: Vec<u8>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/linux-9.tar", listener.local_addr().expect("bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let lines = BufReader::new(stream.try_clone().expect("a reader")).lines();
                let lines: Vec<String> =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let range = lines.iter().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned)
                });
                let from: usize = range
                    .as_deref()
                    .and_then(|r| r.trim_end_matches('-').parse().ok())
                    .unwrap_or(0);
                noted.lock().expect("unpoisoned").push(range.unwrap_or_default());
                let rest = &body[from.min(body.len())..];
                let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
                let heading = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\n\
                     Connection: close\r\n\r\n",
                    rest.len(),
                    body.len() - 1,
                    body.len()
                );
                let _ = stream.write_all(heading.as_bytes()).and_then(|()| stream.write_all(rest));
            }
        });
        (url, asked)
    }

    /// A server of pages that answers 404 to everything else.
    fn pages(pages: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/rt/5.4", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut lines = BufReader::new(stream.try_clone().expect("a reader")).lines();
                let asked = lines.next().and_then(Result::ok).unwrap_or_default();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let path = asked.split(' ').nth(1).unwrap_or_default();
                let page = pages.iter().find(|(known, _)| *known == path);
                let (status, body) =
                    page.map_or(("404 Not Found", ""), |(_, body)| ("200 OK", *body));
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        url
    }

    #[test]
    fn a_patch_that_has_moved_is_named_where_it_is() {
        if tool::find("curl").is_none() && tool::find("wget").is_none() {
            return rtscope_testing::skip::skip_this("without curl and wget");
        }
        let url = pages(&[
            (
                "/rt/5.4/",
                "<a href=\"older/\">older/</a><a href=\"patch-5.4.290-rt96.patch.xz\">x</a>",
            ),
            (
                "/rt/5.4/older/",
                "<a href=\"../\">..</a><a href=\"patch-5.4.70-rt40.patch.gz\">x</a>\
                 <a href=\"patch-5.4.69-rt39.patch.xz\">x</a><a href=\"patch-5.4.69-rt39.patch.gz\">x</a>\
                 <a href=\"patches-5.4.72-rt41.tar.gz\">x</a><a href=\"patch-5.4.72-rt41.patch.sign\">x</a>",
            ),
        ]);
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let said = |name: &str| {
            let from = format!("{url}/{name}");
            bring(&from, None, &cache, &mut |_| {}).expect_err("404").to_string()
        };
        let moved = said("patch-5.4.70-rt40.patch.gz");
        assert!(
            moved.starts_with(&format!("{url}/patch-5.4.70-rt40.patch.gz doesn't exist")),
            "{moved}"
        );
        assert!(moved.ends_with(&format!("use {url}/older/patch-5.4.70-rt40.patch.gz")), "{moved}");
        let other = said("patch-5.4.66-rt38.patch.gz");
        assert!(
            other.ends_with(&format!(
                "the nearest version there is {url}/older/patch-5.4.69-rt39.patch.gz"
            )),
            "{other}"
        );
        let none = said("patch-6.1-rc7-rt5.patch.gz");
        assert!(none.contains("found no similar file"), "{none}");
    }

    #[test]
    fn a_download_is_resumed_and_checked() {
        if tool::find("curl").is_none() && tool::find("wget").is_none() {
            return rtscope_testing::skip::skip_this("without curl and wget");
        }
        let body: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let sum = crate::digest::sha256(&body);
        let (url, asked) = serve(body.clone());
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        fs::create_dir_all(cache.downloads()).expect("made");
        let part = cache.downloads().join(format!("{}-linux-9.tar.part", &sum[..8]));
        fs::write(&part, &body[..150_000]).expect("a part");
        let path = bring(&url, Some(&sum), &cache, &mut |_| {}).expect("fetched");
        assert_eq!(fs::read(&path).expect("a file"), body);
        assert_eq!(*asked.lock().expect("unpoisoned"), ["150000-"], "only the rest was asked for");
        bring(&url, Some(&sum), &cache, &mut |_| {}).expect("there");
        assert_eq!(asked.lock().expect("unpoisoned").len(), 1, "not fetched twice");

        fs::remove_file(&path).expect("removed");
        fs::write(&part, vec![7; 1000]).expect("a wrong part");
        let path = bring(&url, Some(&sum), &cache, &mut |_| {}).expect("fetched again");
        assert_eq!(fs::read(&path).expect("a file"), body);

        let wrong = "0".repeat(64);
        let said = bring(&url, Some(&wrong), &cache, &mut |_| {}).expect_err("refused");
        assert!(
            said.to_string().contains(&format!("has the SHA-256 {sum}, not {wrong}")),
            "{said}"
        );
        assert!(
            !cache.downloads().join("00000000-linux-9.tar").exists(),
            "what is wrong doesn't count"
        );
    }
}
