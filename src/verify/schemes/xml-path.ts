/** Reads the text of one element of a verified XML body. */

/** An ID is far shorter, and an event has its ID near the top. */
const MAX_DEPTH = 64;
const NAME = /[A-Za-z_][\w.:-]*/y;
/** White space, or an attribute in quotes (XML 1.0 §3.1). */
const ATTRIBUTE = /\s+[A-Za-z_][\w.:-]*\s*=\s*(?:"[^<"]*"|'[^<']*')/y;
const TAG_END = /\s*(\/?)>/y;
const ENTITY = /&(?:#(\d{1,7})|#x([0-9A-Fa-f]{1,6})|(amp|lt|gt|quot|apos));/g;
const NAMED: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
/** Markup without elements, by its beginning and its end. A document type could define entities, so it is not among them. */
const SKIPPED: readonly (readonly [start: string, end: string])[] = [
  ['<!--', '-->'],
  ['<?', '?>'],
];
const CDATA = ['<![CDATA[', ']]>'] as const;

/** The form of a path: element names from the root down. */
export const XML_PATH = /^[A-Za-z_][\w.-]*(?:\/[A-Za-z_][\w.-]*){0,31}$/;

/** The text of the only element at the path; undefined if there is none, several, or one with elements in it. */
type ReadXml = (body: Buffer) => string | undefined;

/** Compiles a path such as `notification/id`. Prefixes of namespaces are ignored. */
export function compileXmlPath(path: string): ReadXml {
  const names = path.split('/');
  return (body) => new XmlScan(body.toString('utf8'), names).read();
}

/** One pass over the text, which ends at the first thing that is not plain XML. */
class XmlScan {
  readonly #text: string;
  readonly #names: readonly string[];
  /** The open elements, without prefixes. */
  readonly #open: string[] = [];
  #at = 0;
  /** The text of the element at the path while it is open. */
  #value: string | undefined;
  readonly #found: string[] = [];

  constructor(text: string, names: readonly string[]) {
    this.#text = text;
    this.#names = names;
  }

  read(): string | undefined {
    while (this.#at < this.#text.length) if (!this.#readNext()) return undefined;
    return this.#open.length === 0 && this.#found.length === 1 ? this.#found[0] : undefined;
  }

  #readNext(): boolean {
    if (this.#text[this.#at] !== '<') return this.#readText();
    for (const [start, end] of SKIPPED) if (this.#text.startsWith(start, this.#at)) return this.#skip(start, end) !== undefined;
    if (this.#text.startsWith(CDATA[0], this.#at)) return this.#add(this.#skip(...CDATA));
    return this.#text[this.#at + 1] === '/' ? this.#close() : this.#openElement();
  }

  #readText(): boolean {
    const end = this.#text.indexOf('<', this.#at);
    const text = this.#text.slice(this.#at, end === -1 ? undefined : end);
    this.#at += text.length;
    return this.#add(decodeEntities(text));
  }

  #add(text: string | undefined): boolean {
    if (text !== undefined && this.#value !== undefined) this.#value += text;
    return text !== undefined;
  }

  #skip(start: string, end: string): string | undefined {
    const from = this.#at + start.length;
    const to = this.#text.indexOf(end, from);
    if (to === -1) return undefined;
    this.#at = to + end.length;
    return this.#text.slice(from, to);
  }

  #openElement(): boolean {
    const name = this.#match(NAME, this.#at + 1)?.[0];
    if (name === undefined || this.#open.length === MAX_DEPTH || this.#value !== undefined) return false;
    while (this.#match(ATTRIBUTE, this.#at) !== undefined);
    const end = this.#match(TAG_END, this.#at);
    if (end === undefined) return false;
    this.#open.push(toLocal(name));
    if (this.#isAtPath()) this.#value = '';
    return end[1] === '' || this.#finish();
  }

  #close(): boolean {
    const name = this.#match(NAME, this.#at + 2)?.[0];
    const end = this.#match(TAG_END, this.#at);
    return name !== undefined && end?.[1] === '' && this.#open.at(-1) === toLocal(name) && this.#finish();
  }

  #finish(): boolean {
    if (this.#value !== undefined) this.#found.push(this.#value);
    this.#value = undefined;
    this.#open.pop();
    return true;
  }

  #isAtPath(): boolean {
    return this.#open.length === this.#names.length && this.#names.every((name, at) => this.#open[at] === name);
  }

  #match(pattern: RegExp, from: number): RegExpExecArray | undefined {
    pattern.lastIndex = from;
    const found = pattern.exec(this.#text) ?? undefined;
    if (found !== undefined) this.#at = pattern.lastIndex;
    return found;
  }
}

function toLocal(name: string): string {
  return name.slice(name.indexOf(':') + 1);
}

/** Undefined for other entities. */
function decodeEntities(text: string): string | undefined {
  if (!text.includes('&')) return text;
  let isKnown = true;
  const plain = text.replace(ENTITY, (_, decimal?: string, hex?: string, name = '') => {
    const code = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal);
    if (name !== '') return NAMED[name] ?? '';
    if (code > 0x10_ff_ff) isKnown = false;
    return isKnown ? String.fromCodePoint(code) : '';
  });
  return isKnown && !text.replace(ENTITY, '').includes('&') ? plain : undefined;
}
