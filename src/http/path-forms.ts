/**
 * The paths that an app may interpret a request's path as. Routers and servers decode escapes, fold case, drop parameters and so on,
 * each in a different order, so this file applies all of that in every order. Two paths that share a form may reach the same handler.
 */
import { foldCase } from '../core/text.ts';

/** A difference between two paths that an app may ignore. */
export type PathDistinction =
  | 'percentEncoding'
  | 'letterCase'
  | 'unicodeForm'
  | 'trailingSlash'
  | 'extension'
  | 'slashes'
  | 'semicolon'
  | 'trailingDots'
  | 'punctuation'
  | 'otherNames';

/** All of them, in the order of the config's documentation. */
export const PATH_DISTINCTIONS: readonly PathDistinction[] = [
  'percentEncoding',
  'letterCase',
  'unicodeForm',
  'trailingSlash',
  'extension',
  'slashes',
  'semicolon',
  'trailingDots',
  'punctuation',
  'otherNames',
];

/** The distinctions that the app is known to make. */
export type KeptDistinctions = ReadonlySet<PathDistinction>;

/** For an app of which nothing is known. */
export const NOTHING_KEPT: KeptDistinctions = new Set();

/** Limits the time that the forms of a path take, for all apps together. */
export interface FormBudget {
  /** They may still be processed. */
  chars: number;
}

/** A path with more forms than this was crafted, with nested escapes and parameters. */
const MAX_FORMS = 48;
/** The characters of all forms together, decomposed. The longest path, of 8 KiB, can have three forms of its length. */
const MAX_FORM_CHARS = 24 * 1024;
/** A character of a form that is not ASCII takes as much time as so many others. One can become 18 (U+FDFA). */
const NON_ASCII_COST = 4;
/** Lower-case letters and digits, in segments that are not empty. */
const PLAIN = /^(?:\/[a-z0-9]+)+$|^\/$/;
/** Of Jakarta Faces. */
const FACES_FOLDER = '/faces/';
const STEPS_APPLY = /[%;\\+]|[^\x20-\x7e]/;
const ESCAPES = /(?:%[0-9a-f]{2})+/gi;
const PARAMETERS = /;[^/]*/g;
const BACKSLASH = /\\/g;
const LAST_EXTENSION = /^[0-9A-Za-z_]+$/;
const INDEX = '/index';
/** Longer paths appear in no config, and many long forms would take milliseconds. */
const MAX_PAGE_PATH = 512;
const PAGES = ['.html', '.htm', '.php'];
/** The end of a script before the rest of a path. PHP, CGI, ASP.NET and CFML run `/pay.php` for `/pay.php/x`, and a front controller `/admin` for `/index.php/admin`. */
const SCRIPT = /\.(?:php\d?|phtml|phar|f?cgi|wsgi|pl|py|rb|sh|lua|jspx?|aspx?|as[hm]x|axd|svc|cfml?|cfc)\//gi;
const CGI = /\/cgi-bin\/[^/]+\//i;
/** ASP.NET cuts the session out of a path, in any place. */
const SESSION = /\/\((?:[a-z]\([^/()]*\))+\)/gi;
/** Every form has two more for each script. No request names several. */
const MAX_SCRIPTS = 2;
/** Next.js runs a page for the URL of its data, Jakarta Faces a view behind its own name. Nuxt serves a file for the URL of its resized image. */
const INNER_PATH = /\/(?:(?:_next\/data|_ipx)\/[^/]+|faces(?:\/faces)*)\//i;
const JSON_OF_PAGE = /\.json$/i;
/** So does Waku: `/RSC/R/admin.txt` is of `/admin`, and `/RSC/R/_root.txt` of `/`. */
const WAKU_FOLDER = /\/rsc\/r\//i;
const WAKU_END = /(?:(?<=\/)_root)?\.txt$/i;
/** So does Gatsby: `/page-data/admin/page-data.json` is the data of `/admin`. */
const GATSBY_DATA = ['/page-data/', '/page-data.json'] as const;
/**
 * Frameworks serve the data of a page as if it were a file below it: SvelteKit, Nuxt (with any character for the dot of `.json`, also the one before a
 * query), React Router, Next.js (an export) and Qwik.
 */
const PART_OF_PAGE = /^(?:__(?:data\.json|route\.js)|_payload.*|_(?:root)?\.(?:data|rsc)|__next\..*\.txt|q-data\.json)$/i;
/** The same of a page whose name ends so (SvelteKit). */
const PART_OF_HTML = /(?<=\.html)__(?:data\.json|route\.js)$/i;
/** Jakarta Faces runs the same view for them. */
const FACES = /\.(?:jsf|faces)$/i;
/** Folders whose paths have other names, which may be anywhere. */
const NAMING_FOLDER = /\/(?:_next|rsc|_ipx|faces|page-data)(?:\/|$)/i;
const END_OF_PATH = /[?#]/;
const MARKS = /[\p{Mn}\p{Default_Ignorable_Code_Point}]+/gu;
/** No text has so many marks in a row (UAX #15, Stream-Safe Text Format). Sorting them takes quadratic time. The last two are letters that become marks. */
const MANY_MARKS = /[\p{M}\uff9e\uff9f]{31}/u;
const NOT_ASCII = /[^\0-\x7f]/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters.
const CONTROL = /[\0-\x1f\x7f]/;
/** Windows ignores spaces around the dots. */
const DOT_SEGMENT = /(?:^|\/) *\.{1,2} *(?:\/|$)/;
/** All but the slash. */
const PUNCTUATION = /[!-.:-@[-`{-~ ]/g;
const ANY_PUNCTUATION = /(?!\/)[\p{P}\p{S}\p{Z}]/gu;
/** Stands for dots and spaces at the end of a segment: no path has it. */
const KEPT = '\0';
/** An empty segment, or one that ends with a dot or a space. Most paths have none, and splitting a path is slow. */
const UNFOLDED_SEGMENT = /\/\/|[. ]\/|[/. ]$/;

/** Creates a budget for one path. */
export function createFormBudget(): FormBudget {
  return { chars: MAX_FORM_CHARS };
}

/** Returns whether the path has no form but itself. */
export function isPlainPath(path: string): boolean {
  // An app may serve the index of a directory at the path of the directory.
  return PLAIN.test(path) && !path.endsWith(INDEX) && !path.includes(FACES_FOLDER);
}

/**
 * Every form of `path` (RFC 3986 §6.2.2), without a trailing slash; '' is the root. Undefined if the path must not reach any app: it has a
 * dot segment, a control character or invalid UTF-8 in some form, or too many forms.
 */
export function toPathForms(
  path: string,
  kept: KeptDistinctions = NOTHING_KEPT,
  budget: FormBudget = createFormBudget(),
): ReadonlySet<string> | undefined {
  const forms = new Set<string>();
  if (!STEPS_APPLY.test(path)) return addFolded(path, kept, budget, forms) ? forms : undefined;
  // Iteration over a set includes elements that are added meanwhile.
  const reached = new Set([path]);
  for (const form of reached) {
    const decomposed = decompose(form, kept);
    if (decomposed === undefined) return undefined;
    budget.chars -= decomposed.length * (NOT_ASCII.test(form) ? NON_ASCII_COST : 1);
    if (budget.chars < 0) return undefined;
    if (!addFolded(decomposed, kept, budget, forms) || !addSteps(form, kept, reached) || reached.size > MAX_FORMS)
      return undefined;
  }
  return forms;
}

/** Separates letters from their accents; undefined for marks that no text has. */
function decompose(form: string, kept: KeptDistinctions): string | undefined {
  if (kept.has('unicodeForm') || !NOT_ASCII.test(form)) return form;
  return MANY_MARKS.test(form) ? undefined : form.normalize('NFKD');
}

/** Applies each step once. The order matters: `/a;%2fb` is `/a` for one app and `/a/b` for another. */
function addSteps(form: string, kept: KeptDistinctions, reached: Set<string>): boolean {
  if (!kept.has('percentEncoding')) {
    const decoded = decode(form);
    if (decoded === undefined) return false;
    reached.add(decoded);
    // Sinatra serves `/my+files` and `/my%2bfiles` by the handler of `/my files`.
    reached.add(form.replaceAll('+', ' '));
    const end = form.search(END_OF_PATH);
    if (end !== -1) reached.add(form.slice(0, end));
  }
  if (!kept.has('semicolon')) reached.add(form.replace(PARAMETERS, ''));
  if (!kept.has('slashes')) reached.add(form.replace(BACKSLASH, '/'));
  // `/admin%2f.json` is `/admin/` for an app that removes the extension first.
  if (!kept.has('extension')) reached.add(withoutLastExtension(form));
  if (!kept.has('unicodeForm') && NOT_ASCII.test(form)) reached.add(form.normalize('NFKC'));
  return true;
}

/** Decodes once; undefined if the result has a control character or invalid UTF-8. */
function decode(form: string): string | undefined {
  try {
    const decoded = form.replace(ESCAPES, decodeURIComponent);
    return CONTROL.test(decoded) ? undefined : decoded;
  } catch {
    return undefined;
  }
}

/** Adds the forms that are the same in any order. Returns false for a dot segment, or if the budget is exceeded. */
function addFolded(decomposed: string, kept: KeptDistinctions, budget: FormBudget, forms: Set<string>): boolean {
  const text = foldText(decomposed, kept);
  // After the invisible characters are removed: one between two dots would hide them. Folding removes no dot.
  if (DOT_SEGMENT.test(text)) return false;
  const folded = foldSegments(text, kept);
  const names = kept.has('otherNames') ? [folded] : toNames(folded);
  if (names === undefined) return false;
  for (const [index, name] of names.entries()) {
    if (index > 0) budget.chars -= name.length;
    if (budget.chars < 0) return false;
    addJoined(name, kept, forms);
    if (!kept.has('extension') && !addFileNames(name, kept, budget, forms)) return false;
  }
  return true;
}

/** The path, and other names of the handlers that an app may run for it; undefined if it has too many. */
function toNames(path: string): string[] | undefined {
  const plain = path.includes('/(') ? path.replaceAll(SESSION, '').replace(/^(?=[^/])/, '/') : path;
  const names = plain === path ? [path] : [path, plain];
  const scripts = [...plain.matchAll(SCRIPT)];
  if (scripts.length > MAX_SCRIPTS) return undefined;
  for (const { index, 0: match } of scripts) {
    const end = index + match.length - 1;
    names.push(plain.slice(0, end), plain.slice(0, plain.lastIndexOf('/', index)) + plain.slice(end));
  }
  const cgi = CGI.exec(plain);
  if (cgi !== null) names.push(plain.slice(0, cgi.index + cgi[0].length - 1));
  if (INNER_PATH.test(plain)) names.push(plain.replace(INNER_PATH, '/').replace(JSON_OF_PAGE, ''));
  if (WAKU_FOLDER.test(plain) && WAKU_END.test(plain)) names.push(plain.replace(WAKU_FOLDER, '/').replace(WAKU_END, ''));
  if (FACES.test(plain)) names.push(plain.replace(FACES, '.xhtml'));
  const [folder, file] = GATSBY_DATA;
  if (plain.endsWith(file)) names.push(plain.slice(0, -file.length).replace(folder, '/'));
  const slash = plain.lastIndexOf('/');
  if (PART_OF_PAGE.test(plain.slice(slash + 1))) names.push(plain.slice(0, slash));
  if (PART_OF_HTML.test(plain)) names.push(plain.replace(PART_OF_HTML, ''));
  return names;
}

/** Whether another name of a path below this one may be anywhere. */
export function hasOtherNames(prefix: string): boolean {
  return `${prefix}/`.search(SCRIPT) !== -1 || NAMING_FOLDER.test(prefix);
}

/** CherryPy runs the handler `admin_panel` for `/admin.panel`, CakePHP `userList` for `/user-list`; WordPress serves `/members` for `/.members-`. */
function toJoined(form: string, kept: KeptDistinctions): string {
  const punctuation = NOT_ASCII.test(form) ? ANY_PUNCTUATION : PUNCTUATION;
  if (kept.has('punctuation') || form.search(punctuation) === -1) return form;
  const joinSegment = (segment: string): string => {
    const bare = kept.has('trailingDots') ? withoutTrailingDots(segment) : segment;
    const joined = bare.replace(punctuation, '') + (bare === segment ? '' : KEPT);
    return joined === '' && segment !== '' ? '_' : joined;
  };
  return form.split('/').map(joinSegment).join('/');
}

function addJoined(form: string, kept: KeptDistinctions, forms: Set<string>): void {
  forms.add(form).add(toJoined(form, kept));
}

/** File servers serve `/report.html` for `/report`, and the index of a directory for the directory. */
function addFileNames(folded: string, kept: KeptDistinctions, budget: FormBudget, forms: Set<string>): boolean {
  let bare = folded;
  // `/v1.0.json` is `/v1.0` for Rails, and `/report.html.en` is `/report.html` for Apache.
  for (let dot = findExtension(folded, 0); dot !== -1; dot = findExtension(folded, dot)) {
    const shorter = folded.slice(0, dot);
    if (bare === folded) bare = shorter;
    else budget.chars -= dot;
    if (budget.chars < 0) return false;
    addJoined(shorter, kept, forms);
  }
  if (bare.endsWith(INDEX)) {
    const folder = bare.slice(0, -INDEX.length);
    addJoined(folder, kept, forms);
    if (kept.has('trailingSlash')) addJoined(`${folder}/`, kept, forms);
  }
  if (bare !== folded || folded.length > MAX_PAGE_PATH) return true;
  const path = folded.endsWith('/') ? folded.slice(0, -1) : folded;
  for (const each of new Set([path, toJoined(path, kept)]))
    for (const page of PAGES) forms.add(each + page).add(`${each}${INDEX}${page}`);
  return true;
}

/**
 * Letters as the most lenient comparison treats them. Without accents and invisible characters: a database that looks up `/ádmin` by a common
 * collation finds `/admin`.
 */
function foldText(decomposed: string, kept: KeptDistinctions): string {
  const text = kept.has('unicodeForm') || !NOT_ASCII.test(decomposed) ? decomposed : decomposed.replace(MARKS, '');
  return kept.has('letterCase') ? text : foldCase(text);
}

function foldSegments(path: string, kept: KeptDistinctions): string {
  if (!UNFOLDED_SEGMENT.test(path)) return path;
  const segments = path.split('/');
  const last = segments.length - 1;
  let folded = '';
  for (let i = 1; i <= last; i++) {
    const segment = kept.has('trailingDots') ? (segments[i] as string) : withoutTrailingDots(segments[i] as string);
    if (segment !== '' || kept.has(i === last ? 'trailingSlash' : 'slashes')) folded += `/${segment}`;
  }
  return folded;
}

/** Windows opens `/admin.` and `/admin ` as `/admin`. */
function withoutTrailingDots(segment: string): string {
  let end = segment.length;
  while (end > 0 && (segment[end - 1] === '.' || segment[end - 1] === ' ')) end--;
  return segment.slice(0, end);
}

/** Where the next extension of the last segment begins after `from`, or -1. Rails serves `/admin.json` by the handler of `/admin`; so did earlier versions of Spring. */
function findExtension(path: string, from: number): number {
  const dot = path.indexOf('.', Math.max(path.lastIndexOf('/') + 2, from + 1));
  return dot === path.length - 1 ? -1 : dot;
}

/** As a framework does before it decodes: only the last extension, whose segment may end with an escape of a slash. */
function withoutLastExtension(path: string): string {
  const dot = path.lastIndexOf('.');
  const hasExtension = dot > 1 && path[dot - 1] !== '/' && LAST_EXTENSION.test(path.slice(dot + 1));
  return hasExtension ? path.slice(0, dot) : path;
}
