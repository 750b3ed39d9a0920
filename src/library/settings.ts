/** Checks the settings of a verifier: apps in JavaScript can pass anything, such as an unset variable, and a wrong value could switch a check off. */
import { type Milliseconds, parseDuration } from '../core/clock.ts';
import { MEDIA_TYPE } from '../core/head.ts';
import type { Problem } from '../core/problem.ts';
import type { Tolerance } from '../verify/schemes/description.ts';
import type { Duration, HandshakeSettings, SecretOptions, VerifierOptions } from './types.ts';

/** A setting is wrong. The message says which, and how to fix it; it contains no secret. */
export class VerifierError extends Error {
  override name = 'VerifierError';
}

export function fail(text: string): never {
  throw new VerifierError(text);
}

/** Which values of a setting are right, what they are called, and whether it must be set. `isRight` gets the name of the setting, for what is within it. */
export type Rule = readonly [isRight: (value: unknown, setting: string) => boolean, title: string, isNeeded?: true];
/** A rule for each setting; all others are unknown. */
export type Rules<Settings> = Readonly<Record<keyof Settings, Rule>>;

export const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
const isFunction = (value: unknown): boolean => typeof value === 'function';
const isMatch = (pattern: RegExp, value: unknown): boolean => typeof value === 'string' && pattern.test(value);
export const isListOf = (pattern: RegExp, value: unknown): boolean =>
  Array.isArray(value) && value.length > 0 && value.every((each) => isMatch(pattern, each));

/** Checked where it is read. */
export const ANY: Rule = [(value) => value !== null, 'a value'];
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) > 0;
export const COUNT: Rule = [isCount, 'an integer above 0'];
export const LABEL: Rule = [(value) => isMatch(/^[\x21-\x7e]{1,128}$/, value), '1 to 128 visible ASCII characters'];
export const TEXT: Rule = [(value) => isMatch(/./, value), 'text'];
const FUNCTION: Rule = [isFunction, 'a function'];
const FLAG: Rule = [(value) => typeof value === 'boolean', 'true or false'];

export function oneOf(...values: string[]): Rule {
  return [(value) => values.includes(value as string), values.join(' or ')];
}

/** For an object of an app with these methods. */
export function hasMethods(...names: string[]): Rule {
  const isRight = (value: unknown): boolean =>
    isObject(value) && names.every((name) => isFunction((value as Record<string, unknown>)[name]));
  return [isRight, `an object with the methods ${names.join(', ')}`, true];
}

/** In bytes. */
const MAX_BODY = 1_073_741_824;

export const VERIFIER: Rules<VerifierOptions> = {
  scheme: [(value) => typeof value === 'string' || isObject(value), 'the name or the description of a scheme', true],
  secrets: [Array.isArray, 'a list', true],
  tolerance: ANY,
  dedup: [isObject, 'a store, or an object with one'],
  handshake: [(value) => value === 'off' || isObject(value), 'off or an object'],
  maxBody: [(value) => isCount(value) && (value as number) <= MAX_BODY, 'an integer above 0 and at most 1 GiB'],
  contentTypes: [(value) => isListOf(MEDIA_TYPE, value), 'a list of media types in lower case, such as application/json'],
  allowQuery: FLAG,
  publicUrl: [
    (value) => isMatch(/^https?:\/\/[^?#@/]+(?:\/[^?#]*[^?#/])?$/i, value) && URL.canParse(value as string),
    'scheme and host, such as https://hooks.example.com',
  ],
  urlCredentials: ANY,
  receiverId: LABEL,
  allowWeakDigest: FLAG,
  onStoreError: FUNCTION,
  onRejected: FUNCTION,
  now: FUNCTION,
};

export const SECRET: Rules<SecretOptions> = {
  secret: ANY,
  name: TEXT,
  encoding: oneOf('utf8', 'base64', 'hex'),
  // In seconds, it would have ended in 1970.
  notAfter: [(value) => Number.isFinite(value) && (value as number) >= 1e11, 'a number of milliseconds since 1970'],
};

export const HANDSHAKE: Rules<HandshakeSettings> = {
  type: ANY,
  verifyToken: ANY,
  parameter: TEXT,
  allowedOrigins: [(value) => isListOf(/./, value), 'a list of host names'],
  allowedRate: COUNT,
  publicKey: TEXT,
  onOfferedToken: FUNCTION,
};

/** Throws for the first wrong setting. A setting that is undefined is not set. */
export function checkSettings<Settings>(given: Settings, rules: Rules<Settings>, path = ''): void {
  if (!isObject(given)) return fail(`${path || 'options'}: ${show(given)} is not an object`);
  for (const name of new Set([...Object.keys(rules), ...Object.keys(given)])) {
    const title = path === '' ? name : `${path}.${name}`;
    if (!Object.hasOwn(rules, name)) fail(`${title}: unknown; the settings are ${Object.keys(rules).join(', ')}`);
    check(given[name as keyof Settings], rules[name as keyof Settings], title);
  }
}

/** Throws if the value breaks the rule. */
export function check(value: unknown, [isRight, wanted, isNeeded]: Rule, setting: string): void {
  if ((value !== undefined || isNeeded) && !isRight(value, setting)) fail(`${setting}: ${show(value)} is not ${wanted}`);
}

/** No text and no object, which may be or contain a secret. */
function show(value: unknown): string {
  return typeof value === 'string' || Object(value) === value ? `the ${typeof value}` : String(value);
}

/** Throws for the first error of the gate's rules, whose paths begin where the settings do; warnings are collected. */
export function report(problems: Iterable<Problem>, warn: (text: string) => void): void {
  for (const { severity, path, message, hint } of problems) {
    const text = `${path.join('.').replace(/^custom|^$/, 'scheme')}: ${message}`;
    if (severity === 'error') fail(hint === undefined ? text : `${text}; ${hint}`);
    warn(text);
  }
}

/** The time by the clock of the app. */
export function readNow(now: () => number): number {
  const at = now();
  return Number.isFinite(at) ? at : fail(`now: ${show(at)} is not a number of milliseconds since 1970`);
}

export function toTime(value: Duration, setting: string): Milliseconds {
  const time = typeof value === 'string' ? parseDuration(value) : value;
  if (typeof time === 'object') return fail(`${setting}: ${time.problem}`);
  return Number.isFinite(time) && time >= 0 ? time : fail(`${setting}: ${show(time)} is not a number of milliseconds`);
}

export function toTolerance(given: NonNullable<VerifierOptions['tolerance']>): Tolerance {
  if (!isObject(given)) return toTolerance({ past: given, future: given });
  checkSettings(given, { past: ANY, future: ANY }, 'tolerance');
  return { past: toTime(given.past, 'tolerance'), future: toTime(given.future, 'tolerance') };
}
