/** Formats of Kubernetes values, shared by the injector's config and the pods' annotations. */

/** A format: its pattern, which also works in RE2, so that admission policies can check it, and its description for errors. */
export interface ValueForm {
  /** Anchored; the whole text. */
  readonly pattern: string;
  /** After "expected", for example "a port from 1 to 65535". */
  readonly expected: string;
  readonly maxLength?: number;
  /** The allowed words, if there are few. */
  readonly words?: readonly string[];
}

const LABEL = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?';
const SUBDOMAIN = `${LABEL}(?:\\.${LABEL})*`;
const PORT = '(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])';
const PORT_NAME = '[a-z0-9-]{0,14}[a-z][a-z0-9-]{0,14}';
const VARIABLE = '[A-Za-z_][A-Za-z0-9_]{0,127}';
export const MAX_NAME_LENGTH = 253;

/** The name of an object such as a ConfigMap (RFC 1123 subdomain). */
export const OBJECT_NAME: ValueForm = {
  pattern: `^${SUBDOMAIN}$`,
  expected: 'a name of lower-case letters, digits, dots and dashes',
  maxLength: MAX_NAME_LENGTH,
};
/** Several names of objects. */
export const OBJECT_NAMES: ValueForm = {
  pattern: `^${SUBDOMAIN}(?: *, *${SUBDOMAIN})*$`,
  expected: 'names of lower-case letters, digits, dots and dashes, separated by commas',
};
/** The name of a container (RFC 1123 label). */
export const CONTAINER_NAME: ValueForm = {
  pattern: `^${LABEL}$`,
  expected: 'a container name: at most 63 lower-case letters, digits and dashes',
};
/** The name of a volume of a pod (RFC 1123 label). */
export const VOLUME_NAME: ValueForm = {
  pattern: `^${LABEL}$`,
  expected: 'a volume name: at most 63 lower-case letters, digits and dashes',
};
export const PORT_NUMBER: ValueForm = { pattern: `^${PORT}$`, expected: 'a port from 1 to 65535' };
/** A container port, by number or name (RFC 6335 §5.1). */
export const PORT_NUMBER_OR_NAME: ValueForm = {
  pattern: `^(?:${PORT}|${PORT_NAME})$`,
  expected: 'a port from 1 to 65535, or the name of a port of the container',
};
export const IMAGE: ValueForm = {
  pattern: '^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$',
  expected: 'an image reference without blanks',
};
/** Durations in whole seconds, because preStop supports no others. */
export const WHOLE_SECONDS: ValueForm = {
  pattern: '^(?:(?:[0-9]|[1-9][0-9]|[1-5][0-9]{2}|600)s|(?:[1-9]|10)m)$',
  expected: 'a duration in whole seconds (s) or minutes (m), at most 10m',
};
/** CPU quantities above zero. */
export const CPU: ValueForm = {
  pattern: '^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}(?:\\.[0-9]{1,3})?|0\\.(?:[1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$',
  expected: 'cores, as 50m or 0.5',
};
/** Memory with a unit: a number of bytes is probably a forgotten unit, and 100m is a tenth of a byte. */
export const MEMORY: ValueForm = {
  pattern: '^[1-9][0-9]{0,5}(?:Mi|Gi|M|G)$',
  expected: 'memory in Mi, Gi, M or G',
};
/** Of a sidecar, as measured (docs/sizing.md); a test compares them with the measurements. */
export const DEFAULT_MEMORY_REQUEST = '96Mi';
export const DEFAULT_MEMORY_LIMIT = '192Mi';
export const SIDECAR_MODE: ValueForm = {
  pattern: '^(?:auto|native|container)$',
  expected: 'auto, native or container',
  words: ['auto', 'native', 'container'],
};
export const INTERCEPTION: ValueForm = {
  pattern: `^(?:service|rename|(?:same-port|env)(?::${VARIABLE})?)$`,
  expected: 'service, rename, same-port, same-port:VARIABLE, env or env:VARIABLE',
  words: ['service', 'rename', 'same-port', 'env'],
};

/**
 * Environment variables that change which code runs in the sidecar, or what it trusts and connects to. No setting allows them. They are those of
 * Node.js and its libraries, of the dynamic loader and glibc, of bash, of other runtimes, and of proxies.
 */
const PROGRAM_PREFIXES = [
  ...['NODE', 'NPM_', 'V8_', 'UV_', 'ICU_', 'SSL', 'OPENSSL_', 'OSSL_', 'CTLOG_', 'QLOG', 'RANDFILE', 'SIDEGATE_'],
  ...[
    'LD_',
    'GLIBC_',
    'MALLOC_',
    'GCONV_',
    'GETCONF_',
    'LOCPATH',
    'LOCALDOMAIN',
    'NLSPATH',
    'HOSTALIASES',
    'RES_',
    'RESOLV_',
    'TZDIR',
  ],
  ...[
    'BASH',
    'SHELL',
    'POSIXLY_',
    'ENV$',
    'PATH$',
    'HOME$',
    'IFS$',
    'PS4$',
    'CDPATH$',
    'GLOBIGNORE$',
    'PROMPT_COMMAND$',
    'TMPDIR$',
    'XDG_',
  ],
  ...['PYTHON', 'PERL', 'RUBY', 'GEM_', 'LUA_', 'PHP', 'JAVA_', '_JAVA_', 'JDK_', 'DOTNET_', 'COREHOST_', 'CORECLR_', 'DYLD_'],
  ...['ASAN_', 'LSAN_', 'TSAN_', 'UBSAN_', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY', 'FTP_PROXY'],
];
export const PROGRAM_VARIABLES = `^(?:${PROGRAM_PREFIXES.join('|')})`;
/** The name of an environment variable that another webhook may add to a sidecar. */
export const ADDED_VARIABLE: ValueForm = {
  pattern: '^[A-Z_][A-Z0-9_]{0,127}$',
  expected:
    'the name of an environment variable, in capitals, that does not change the program: not NODE_…, LD_…, SSL_…, BASH_ENV or PATH',
};

/** Directories with the program, its libraries, its config or the kernel's files; no setting allows a mount there in a sidecar. */
export const PROGRAM_FOLDERS = '^/(?:opt|usr|lib[0-9a-z]*|s?bin|etc|proc|sys|dev|node_modules)(?:/|$)';
/** A directory that another webhook may mount into a sidecar. No segment starts with a dot, so `..` is excluded. */
export const ADDED_MOUNT: ValueForm = {
  pattern: '^(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){1,16}$',
  expected: 'an absolute path outside the directories of the program: not /opt, /usr, /lib, /bin, /etc, /proc, /sys or /dev',
};

/** How the sidecar intercepts requests to the app. */
export type InterceptionMode = 'service' | 'rename' | 'same-port' | 'env';
/** The modes in which the sidecar listens on the port that the app used. */
export const APP_PORT_MODES: readonly string[] = ['same-port', 'env'] satisfies InterceptionMode[];
/** The mode, and the environment variable of the app that it sets. */
export interface Interception {
  readonly mode: InterceptionMode;
  readonly variable?: string;
}
/** `native`: an init container with restartPolicy Always; `auto`: native if the cluster supports it. */
export type SidecarMode = 'auto' | 'native' | 'container';

/** Whether `text` has the form. */
export function hasForm({ pattern, maxLength }: ValueForm, text: string): boolean {
  return text.length <= (maxLength ?? Number.POSITIVE_INFINITY) && new RegExp(pattern, 'u').test(text);
}

/** Parses text that has the format INTERCEPTION. */
export function toInterception(text: string): Interception {
  const [mode = '', variable] = text.split(':');
  if (mode === 'env') return { mode, variable: variable ?? 'PORT' };
  return variable === undefined ? { mode: mode as InterceptionMode } : { mode: mode as InterceptionMode, variable };
}

/** Parses text that has the format WHOLE_SECONDS. */
export function toWholeSeconds(text: string): number {
  const number = Number.parseInt(text, 10);
  return text.endsWith('m') ? number * 60 : number;
}

/** Parses names separated by commas, without duplicates. */
export function toNames(text: string): readonly string[] {
  return [...new Set(text.split(',').map((name) => name.trim()))];
}

/** A Kubernetes quantity: a decimal number with a suffix or an exponent. */
const QUANTITY = /^\+?([0-9]{1,18})?(?:\.([0-9]{0,9}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]\+?([0-9]{1,2}))?$/;
const DECIMAL_SUFFIXES = ['n', 'u', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
const BINARY_SUFFIXES = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const FRACTION_DIGITS = 9;
const NANO = 10n ** 9n;
const MEBIBYTE = 1n << 20n;

/** Whether a quantity is above another; false if one is not a quantity. */
export function isAbove(one: string, other: string): boolean {
  const [first, second] = [toNanos(one), toNanos(other)];
  return first !== undefined && second !== undefined && first > second;
}

/** The sum of two quantities, rounded up to what Kubernetes counts: millicores or bytes. Undefined if one is not a quantity. */
export function addQuantities(one: string, other: string, kind: 'cpu' | 'memory'): string | undefined {
  const [first, second] = [toNanos(one), toNanos(other)];
  if (first === undefined || second === undefined) return undefined;
  const sum = first + second;
  if (kind === 'cpu') return `${roundUp(sum, NANO / 1000n)}m`;
  const bytes = roundUp(sum, NANO);
  return bytes % MEBIBYTE === 0n ? `${bytes / MEBIBYTE}Mi` : String(bytes);
}

/** Billionths of a core or of a byte; undefined if the text is not a quantity. */
export function toNanos(text: string): bigint | undefined {
  const [match, whole = '', fraction = '', suffix = '', exponent = '0'] = QUANTITY.exec(text) ?? [];
  if (match === undefined || whole + fraction === '') return undefined;
  const digits = BigInt(`${whole}${fraction.padEnd(FRACTION_DIGITS, '0')}`);
  const binary = BINARY_SUFFIXES.indexOf(suffix);
  if (binary > 0) return digits << BigInt(10 * binary);
  const power = DECIMAL_SUFFIXES.indexOf(suffix) - DECIMAL_SUFFIXES.indexOf('');
  return power < 0 ? roundUp(digits, 1000n ** BigInt(-power)) : digits * 1000n ** BigInt(power) * 10n ** BigInt(exponent);
}

function roundUp(value: bigint, unit: bigint): bigint {
  return (value + unit - 1n) / unit;
}
