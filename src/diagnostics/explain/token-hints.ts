/** Findings on a rejected JSON Web Token, from what it says: the analysis does not verify it again. */
import { hash } from 'node:crypto';
import type { DecodedToken } from '../../core/event.ts';
import { Refusal } from '../../core/refusal.ts';
import { coversQueryOf } from '../../verify/schemes/coverage.ts';
import type { Jwt } from '../../verify/schemes/scheme.ts';
import { compileHashedContent } from '../../verify/schemes/token.ts';
import { toQuery } from '../../verify/schemes/url.ts';
import type { AnalysisInput, ExplainFinding, Explanation } from './analysis.ts';
import { toBodyForms } from './body-forms.ts';
import { toFinding, toHeadHints, toTimeHints } from './hints.ts';
import type { Meter } from './meter.ts';

/** Runs the analysis; at each `yield` the caller can let other work run. */
export function* analyzeToken(analysisInput: AnalysisInput, jwt: Jwt, meter: Meter): Generator<void, Explanation> {
  const { scheme, allowDotInId, request } = analysisInput;
  const head = scheme.readHead(request.headers, { allowDotInId });
  if (head instanceof Refusal) return { findings: toHeadHints(analysisInput, head), isProven: false };
  const inBody = request.body && readBodyToken(jwt, request.body);
  if (inBody !== undefined && 'problem' in inBody)
    return { findings: [toFinding('headers_malformed', `the token is malformed: ${inBody.problem}`)], isProven: false };
  const token = head.token ?? inBody;
  const findings = head.timestamp === undefined ? [] : toTimeHints(analysisInput, head.timestamp);
  if (token !== undefined) {
    findings.push(...toExpiry(analysisInput, token), ...toClaimHints(jwt, token), ...toKeyHints(analysisInput, token));
    const body = request.body ?? (coversQueryOf(scheme.description, request.method) ? Buffer.alloc(0) : undefined);
    const changed = body === undefined ? undefined : yield* findBody(analysisInput, jwt.readBodyHash(token.claims), body, meter);
    if (changed !== undefined) findings.unshift(changed);
  }
  if (findings.length === 0)
    findings.push(toFinding('unknown', 'the token is well-formed and for this route, but no key of the route signed it'));
  return { findings, isProven: false };
}

function readBodyToken(jwt: Jwt, body: Buffer): ReturnType<Jwt['readClaims']> | undefined {
  const token = jwt.readBody?.(body);
  return token === undefined || 'problem' in token ? token : jwt.readClaims(token);
}

function toExpiry({ request: { receivedAt } }: AnalysisInput, { claims }: DecodedToken): ExplainFinding[] {
  const { exp } = claims as { exp?: unknown };
  if (typeof exp !== 'number' || receivedAt < exp * 1_000) return [];
  return [toFinding('late', `the token expired ${Math.round(receivedAt / 1_000 - exp)} s before it arrived`)];
}

function toClaimHints({ listStrangeClaims }: Jwt, { claims }: DecodedToken): ExplainFinding[] {
  const wrong = listStrangeClaims(claims);
  if (wrong.length === 0) return [];
  const are = wrong.length === 1 ? 'is' : 'are';
  return [toFinding('token_claims', `the token is for another receiver: ${wrong.join(', ')} ${are} not accepted`)];
}

/** Keys that have names, none of which is that of the token. */
function toKeyHints({ keys }: AnalysisInput, { header }: DecodedToken): ExplainFinding[] {
  const { kid } = header as { kid?: unknown };
  const ids = keys.map(({ key }) => (key?.material as { id?: string } | undefined)?.id);
  if (typeof kid !== 'string' || ids.length === 0 || ids.includes(undefined) || ids.includes(kid)) return [];
  return [toFinding('unknown', 'the token names a key (kid) that is not among the keys of the route')];
}

/** The form of the body that has the digest in the token. */
function* findBody(
  { scheme: { description }, request: { method, target } }: AnalysisInput,
  named: Buffer | undefined,
  body: Buffer,
  meter: Meter,
): Generator<void, ExplainFinding | undefined> {
  const digest = description.jwt?.bodyHash?.digest;
  const hashed = compileHashedContent(description)({ method, url: '', query: toQuery(target), body });
  if (digest === undefined || named === undefined || hashed instanceof Refusal) return undefined;
  if (named.equals(hash(digest, hashed, 'buffer'))) return undefined;
  if (hashed !== body) return toFinding('url', 'the token has the digest of other parameters than those of the query');
  for (const form of toBodyForms(body, meter)) {
    yield;
    if (form?.cause === undefined || !meter.takeCandidate(form.bytes.length)) continue;
    if (named.equals(hash(digest, form.bytes, 'buffer')))
      return toFinding(form.cause, `the token has the digest of the body ${form.text}`);
  }
  return toFinding('unknown', 'the token has the digest of another body');
}
