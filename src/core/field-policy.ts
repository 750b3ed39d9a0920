/** Decides which header fields of a client reach the app; `check` accepts only those that do for a route that is selected by a header. */
import { toFoldedName } from './headers.ts';
import {
  findProxyClaim,
  HOP_BY_HOP,
  isMethodOverride,
  isOwnField,
  isProtectedField,
  isTraceField,
  mayNameUser,
  type ProxyClaim,
  TRACE,
} from './managed-names.ts';

/**
 * What to do with a field of a client: `pass` forwards it as it was sent. Of the others, an assertion of a proxy is forwarded if the proxy is
 * trusted to make it; every other field is dropped, and the value says why.
 */
export type FieldAction =
  | 'pass'
  | 'hopByHop'
  | 'own'
  | 'rewritten'
  | 'trace'
  | 'foreignTrace'
  | 'withheld'
  | 'methodOverride'
  | 'otherSpelling'
  | 'checkedHere'
  | ProxyClaim;

/** The settings of a route that decide which fields its app receives. */
export interface FieldSettings {
  /** Forwards the client's credentials. sidegate acts as the app's origin server, so it may remove them (RFC 9110 §11.6.2). */
  readonly forwardAuthorization: boolean;
  /** `forward`: send the user to the app; `hide`: send no user; default: the route does not authenticate users. */
  readonly user?: 'forward' | 'hide';
  /** What to do with the client certificate; default: the route requires none. */
  readonly certificate?: 'forward' | 'hide';
  /** Forwards fields by which some apps change the method of the request. */
  readonly forwardMethodOverride?: boolean;
  /** Lower-case names of the fields that the signature is read from. */
  readonly signatureHeaders?: readonly string[];
  /** Clients that pass the gates are trusted with the traces of the app: fields of other tracing systems are forwarded, too. */
  readonly trustsTraces?: boolean;
}

/** Set by sidegate for each request, whichever proxy is in front of it; sidegate itself responds to Expect (RFC 9110 §10.1.1). */
const REWRITTEN = new Set(['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'via', 'content-length', 'expect']);

/** `name`: in lower case. */
export function decideFieldAction(name: string, settings: FieldSettings): FieldAction {
  const { signatureHeaders = [], trustsTraces = false, forwardAuthorization, forwardMethodOverride } = settings;
  const folded = toFoldedName(name);
  if (TRACE.has(folded)) return 'trace';
  // An untrusted client must not write into the app's traces, or cause everything to be recorded.
  if (isTraceField(folded) && !trustsTraces && !signatureHeaders.includes(name)) return 'foreignTrace';
  if (folded === 'authorization' && !forwardAuthorization) return 'withheld';
  if (isMethodOverride(folded) && forwardMethodOverride !== true) return 'methodOverride';
  if (HOP_BY_HOP.has(folded)) return 'hopByHop';
  if (REWRITTEN.has(folded)) return 'rewritten';
  if (isOwnField(folded)) return 'own';
  // Another spelling of a managed name: an app may treat it as the real field, and no legitimate client sends one.
  if (folded !== name && isProtectedField(folded)) return 'otherSpelling';
  if (signatureHeaders.some((signed) => signed !== name && toFoldedName(signed) === folded)) return 'otherSpelling';
  return decideClaim(findProxyClaim(folded) ?? findName(name, folded, settings), settings);
}

/** Where the gate itself names the user, no other field may seem to, unless it is part of the signature. */
function findName(
  name: string,
  folded: string,
  { user, certificate, signatureHeaders = [] }: FieldSettings,
): 'checkedHere' | undefined {
  if (user === undefined && certificate === undefined) return undefined;
  return mayNameUser(folded) && !signatureHeaders.includes(name) ? 'checkedHere' : undefined;
}

function decideClaim(claim: ProxyClaim | 'checkedHere' | undefined, { user, certificate }: FieldSettings): FieldAction {
  if (claim === undefined) return 'pass';
  // No proxy may contradict what the route checks itself.
  const isChecked = (claim === 'identity' && user !== undefined) || (claim === 'certificate' && certificate !== undefined);
  return isChecked ? 'checkedHere' : claim;
}
