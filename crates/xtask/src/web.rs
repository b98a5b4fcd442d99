//! `cargo xtask web`: builds and serves the page that runs the built-in kernels in a browser; the test opens it in headless Chromium and
//! reads its result.
//!
//! Without a GPU, Chromium uses SwiftShader. The page itself posts its result, because Chromium's `--dump-dom` does not wait for a GPU.

use crate::install;
use crate::repo::Repo;
use crate::shell::{cargo, command, on_path, quiet};
use crate::targets::TARGETS;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const TRIPLE: &str = "wasm32-unknown-unknown";
/// Time limit of the page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit for the end of Chromium and for reading a request.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Text of the page if the browser has no GPU for it.
const NO_GPU: &str = "the browser gives this page no GPU";
/// Maximum size of a request in bytes.
const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// Result of the page.
pub struct PageReport {
    /// Device on which it ran.
    pub device: String,
    /// Number of passed kernels, as text.
    pub summary: String,
    pub passed: bool,
}

/// Reason why the page has no result.
pub enum PageError {
    /// Chromium is not available, or has no GPU for the page, not even SwiftShader.
    Unavailable(String),
    /// The page or the test failed.
    Failed(String),
}

/// Builds the page and serves it until it is stopped.
pub fn run(repo: &Repo) -> bool {
    let served = build(repo).and_then(|folder| {
        let listener = listen()?;
        println!("{} has the page; open {} in a browser, stop with Ctrl-C", folder.display(), address(&listener)?);
        serve(&listener, &folder, &mpsc::channel().0);
        Ok(())
    });
    served.inspect_err(|why| println!("web: {why}")).is_ok()
}

/// Prints the result of the page in Chromium.
pub fn run_check(repo: &Repo) -> bool {
    let verdict =
        check(repo).inspect_err(|(PageError::Unavailable(why) | PageError::Failed(why))| println!("web: {why}"));
    verdict.is_ok_and(|verdict| {
        println!("{}: {}", verdict.device, verdict.summary);
        verdict.passed
    })
}

/// Builds the page, opens it in Chromium and waits for its result.
pub fn check(repo: &Repo) -> Result<PageReport, PageError> {
    let folder = build(repo).map_err(PageError::Failed)?;
    let (profile, log) = (folder.with_extension("profile"), folder.with_extension("log"));
    let listener = listen().map_err(PageError::Failed)?;
    let address = format!("{}?report", address(&listener).map_err(PageError::Failed)?);
    let (report, reported) = mpsc::channel();
    std::thread::spawn(move || serve(&listener, &folder, &report));
    // A profile locked by another run, possibly on another host, keeps Chromium from starting.
    let _ = std::fs::remove_dir_all(&profile);
    let body = std::fs::create_dir_all(&profile)
        .map_err(|error| PageError::Failed(format!("{}: {error}", profile.display())))
        .and_then(|()| visit(repo, &address, &profile, &log, &reported));
    let _ = std::fs::remove_dir_all(&profile);
    let body = body?;
    let verdict = read(&body).ok_or_else(|| PageError::Failed(format!("the page has no verdict: {body}")))?;
    match verdict.summary.contains(NO_GPU) {
        true => Err(PageError::Unavailable(verdict.summary)),
        false => Ok(verdict),
    }
}

/// Opens an address in Chromium with a separate profile; returns what the page posts.
fn visit(
    repo: &Repo,
    address: &str,
    profile: &Path,
    log: &Path,
    reported: &mpsc::Receiver<String>,
) -> Result<String, PageError> {
    let file = std::fs::File::create(log).map_err(|error| PageError::Failed(format!("{}: {error}", log.display())))?;
    let mut chromium = command(repo, "chromium");
    chromium.args(["--headless=new", "--enable-unsafe-webgpu", "--no-first-run"]);
    chromium.arg(format!("--user-data-dir={}", profile.display())).env("TMPDIR", profile);
    // Chromium's sandbox refuses to start for root.
    if install::is_root(repo) {
        chromium.arg("--no-sandbox");
    }
    chromium.arg(address).stdout(Stdio::null()).stderr(file);
    let mut chromium = chromium.spawn().map_err(|error| PageError::Unavailable(format!("chromium: {error}")))?;
    let body = awaited(&mut chromium, reported, PAGE_TIMEOUT);
    // The browser would stay open.
    end(repo, &mut chromium);
    let with_log = |why: String| format!("{why}; {}: {}", log.display(), last_line(log));
    body.map_err(|error| match error {
        PageError::Unavailable(why) => PageError::Unavailable(with_log(why)),
        PageError::Failed(why) => PageError::Failed(with_log(why)),
    })
}

/// Returns what the page posts before the browser ends or the time limit is reached.
fn awaited(browser: &mut Child, reported: &mpsc::Receiver<String>, timeout: Duration) -> Result<String, PageError> {
    let start = Instant::now();
    while start.elapsed() < timeout {
        if let Ok(body) = reported.recv_timeout(POLL_INTERVAL) {
            return Ok(body);
        }
        if let Ok(Some(status)) = browser.try_wait() {
            return Err(PageError::Unavailable(format!("chromium ended ({status})")));
        }
    }
    Err(PageError::Failed(format!("the page did not end within {} s", timeout.as_secs())))
}

/// Ends a browser with SIGTERM, so that it can clean up, and kills it if it does not end.
fn end(repo: &Repo, browser: &mut Child) {
    let start = Instant::now();
    let asked = quiet(command(repo, "kill").arg(browser.id().to_string())).is_ok();
    while asked && start.elapsed() < SHUTDOWN_TIMEOUT && matches!(browser.try_wait(), Ok(None)) {
        std::thread::sleep(POLL_INTERVAL);
    }
    let _ = browser.kill().and_then(|()| browser.wait());
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_string()
}

/// Parses the result from the elements of the page.
fn read(dom: &str) -> Option<PageReport> {
    let (attributes, summary) = element(dom, "verdict")?;
    let device = element(dom, "adapter").map_or_else(String::new, |(_, text)| text.to_string());
    Some(PageReport { device, summary: summary.to_string(), passed: attributes.contains("class=\"passed\"") })
}

/// Returns the attributes and the text of the element with an id.
fn element<'a>(dom: &'a str, id: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = dom.split_once(&format!("id=\"{id}\""))?;
    let (attributes, rest) = rest.split_once('>')?;
    Some((attributes, rest.split_once('<')?.0))
}

/// Returns why the page cannot be built here, if so.
pub fn obstacle(repo: &Repo) -> Option<String> {
    if !on_path("chromium") {
        return Some("chromium is not installed".to_string());
    }
    install::wasm_bindgen(repo)
        .is_none()
        .then(|| "wasm-bindgen of the version in Cargo.lock is not in .tools".to_string())
}

/// Builds the page and its files in a folder.
fn build(repo: &Repo) -> Result<PathBuf, String> {
    let tool = install::wasm_bindgen(repo)
        .ok_or("wasm-bindgen of the version in Cargo.lock is not in .tools; run `cargo xtask install`")?;
    if let Some(target) = TARGETS.iter().find(|target| target.triple == TRIPLE) {
        target.add(repo)?;
    }
    quiet(&mut cargo(repo, &["build", "--package", "panoply-web", "--target", TRIPLE]))?;
    let folder = repo.target().join("web");
    let program = repo.target().join(TRIPLE).join("debug").join("panoply_web.wasm");
    quiet(command(repo, tool).args(["--target", "web", "--no-typescript", "--out-dir"]).arg(&folder).arg(program))?;
    let page = repo.root.join("crates/web/page/index.html");
    std::fs::copy(&page, folder.join("index.html")).map_err(|error| format!("{}: {error}", page.display()))?;
    Ok(folder)
}

fn listen() -> Result<TcpListener, String> {
    TcpListener::bind("127.0.0.1:0").map_err(|error| format!("cannot open a local port: {error}"))
}

fn address(listener: &TcpListener) -> Result<String, String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(format!("http://localhost:{}/", address.port()))
}

/// Serves the files of a folder forever, and forwards what is posted.
fn serve(listener: &TcpListener, folder: &Path, report: &mpsc::Sender<String>) {
    for stream in listener.incoming().flatten() {
        // Errors of a connection that was closed are ignored.
        let _ = answer(stream, folder, report);
    }
}

fn answer(mut stream: TcpStream, folder: &Path, report: &mpsc::Sender<String>) -> std::io::Result<()> {
    // Browsers open connections for later use; while one is idle, others must not wait forever.
    stream.set_read_timeout(Some(SHUTDOWN_TIMEOUT))?;
    let mut reader = BufReader::new((&mut stream).take(MAX_REQUEST_BYTES));
    let (mut request, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut request)?;
    while reader.read_line(&mut line)? > 2 {
        let field = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        length = field.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(length);
        line.clear();
    }
    if request.starts_with("POST ") {
        let mut body = vec![0; length.min(MAX_REQUEST_BYTES as usize)];
        reader.read_exact(&mut body)?;
        // The receiver is gone if the result is no longer needed.
        let _ = report.send(String::from_utf8_lossy(&body).into_owned());
        return write!(stream, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    }
    let path = request.split([' ', '?']).nth(1).unwrap_or_default().trim_start_matches('/');
    let name = if path.is_empty() { "index.html" } else { path };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        _ => "application/wasm",
    };
    // Only plain file names, so that no path leads out of the folder.
    let file = if name.contains(['/', '\\']) { None } else { std::fs::read(folder.join(name)).ok() };
    let (status, bytes) = file.map_or(("404 Not Found", Vec::new()), |bytes| ("200 OK", bytes));
    let length = bytes.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_result_is_parsed() {
        let dom = "<p id=\"verdict\" class=\"passed\">12 passed</p><li id=\"adapter\">google swiftshader</li>";
        let verdict = read(dom).unwrap();
        assert_eq!(
            (verdict.passed, verdict.summary.as_str(), verdict.device.as_str()),
            (true, "12 passed", "google swiftshader")
        );
        assert!(!read("<p id=\"verdict\">running</p>").unwrap().passed);
        assert!(!read("<p id=\"verdict\" class=\"failed\">failed: no GPU</p>").unwrap().passed);
        assert!(read("<html></html>").is_none());
    }

    #[test]
    fn waiting_ends_with_the_browser_or_the_time_limit() {
        let repo = Repo { root: std::env::temp_dir() };
        let (report, reported) = mpsc::channel();
        let start = Instant::now();
        let mut browser = command(&repo, "false").spawn().unwrap();
        let result = awaited(&mut browser, &reported, PAGE_TIMEOUT);
        assert!(matches!(result, Err(PageError::Unavailable(why)) if why.contains("exit status: 1")));
        let mut browser = command(&repo, "sleep").arg("600").spawn().unwrap();
        let result = awaited(&mut browser, &reported, POLL_INTERVAL);
        assert!(matches!(result, Err(PageError::Failed(why)) if why.contains("did not end")));
        report.send("done".to_string()).unwrap();
        assert!(matches!(awaited(&mut browser, &reported, PAGE_TIMEOUT), Ok(body) if body == "done"));
        end(&repo, &mut browser);
        assert!(browser.try_wait().unwrap().is_some() && start.elapsed() < PAGE_TIMEOUT);
    }

    #[test]
    fn only_files_of_the_folder_are_served() {
        let folder = std::env::temp_dir().join(format!("panoply-xtask-web-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("index.html"), "hello").unwrap();
        let listener = listen().unwrap();
        let at = listener.local_addr().unwrap();
        let served = folder.clone();
        let (report, reported) = mpsc::channel();
        std::thread::spawn(move || serve(&listener, &served, &report));
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let page = ask("GET /?report HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n") && page.ends_with("\r\n\r\nhello"),
            "{page}"
        );
        for path in ["/nothing.js", "/../Cargo.toml", "/%2e%2e/x"] {
            let answer = ask(&format!("GET {path} HTTP/1.1\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
        }
        assert!(ask("POST /report HTTP/1.1\r\ncontent-length: 4\r\n\r\ndone").starts_with("HTTP/1.1 204 "));
        assert_eq!(reported.recv().unwrap(), "done");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
