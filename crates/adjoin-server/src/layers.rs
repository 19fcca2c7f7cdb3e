//! Steps that every request passes: counting, checks of its headers and of access; and the pages without access
//! control.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::access::{self, Access};
use crate::exchange::JSON;
use crate::metrics::Metrics;
use crate::problem::Problem;

/// Description of the API as OpenAPI 3.1.
const OPENAPI: &str = include_str!("../assets/openapi.json");

/// Page for browsers. It loads nothing from other hosts, except images of hits if the user asks for them.
const PAGE: &str = include_str!("../assets/page.html");
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data: https: http:; \
                           style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'";

/// Adds access control to the routes of `guarded`, and the pages that need none. `open` has further routes without
/// access control. All requests are counted.
pub(crate) fn layered<S: Clone + Send + Sync + 'static>(
    guarded: Router<S>,
    open: Router<S>,
    access: &Arc<Access>,
    metrics: &Arc<Metrics>,
) -> Router<S> {
    let openapi = || async { ([(header::CONTENT_TYPE, JSON)], OPENAPI) };
    let open = open.route("/livez", get(|| async { "ok\n" }));
    let open = open.route("/openapi.json", get(openapi)).route("/", get(page));
    let missing =
        || async { Problem::new(StatusCode::NOT_FOUND, "there is no such path; /openapi.json lists all paths") };
    let method = || async {
        Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path does not support the method; /openapi.json lists its methods",
        )
    };
    guarded
        .layer(from_fn_with_state(access.clone(), guard))
        .merge(open)
        .fallback(missing)
        .method_not_allowed_fallback(method)
        .layer(from_fn(well_formed))
        .layer(from_fn_with_state(metrics.clone(), count))
}

/// Counts responses and their time since the arrival of the request.
async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let (begun, method, path) = (Instant::now(), request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    if method == axum::http::Method::POST {
        metrics.responded(status, took);
    } else {
        metrics.answered(status);
    }
    tracing::debug!(%method, path, status, milliseconds = took.as_secs_f64() * 1e3, "request");
    response
}

/// Refuses requests that servers and proxies may interpret differently.
async fn well_formed(request: Request, next: Next) -> Response {
    match access::check_framing(request.version(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Refuses requests that [`Access`] does not allow.
async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn page() -> Response {
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
    (headers, PAGE).into_response()
}
