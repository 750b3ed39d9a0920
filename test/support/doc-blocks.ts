/** The code blocks of a Markdown page, with what the page says about running them. */
import { readFileSync } from 'node:fs';

/** How a block is run. */
export type Directive =
  | { readonly kind: 'run' }
  /** `<!-- not run: REASON -->` */
  | { readonly kind: 'not-run'; readonly reason: string }
  /** `<!-- background: TEXT -->`: keeps running; the next block starts once it has printed TEXT. */
  | { readonly kind: 'background'; readonly until: string }
  /** `<!-- exits: CODE -->` */
  | { readonly kind: 'exits'; readonly code: number };

/** A fenced code block. */
export interface Block {
  readonly page: string;
  readonly line: number;
  readonly language: string;
  /** The second word of the info string: the file that the reader writes the block to. */
  readonly file: string | undefined;
  readonly text: string;
  readonly directive: Directive;
}

/** Where a block begins. */
export const place = ({ page, line }: Block): string => `${page}:${line}`;

const FENCE = /^( *)```([^\n]*)\n([\s\S]*?)^\1```$/gm;
const DIRECTIVE = /<!-- (not run|background|exits): (.+) -->\s*$/;

/** All blocks of a page, in order. */
export function readBlocks(page: string, path: string): Block[] {
  const text = readFileSync(path, 'utf8');
  return [...text.matchAll(FENCE)].map((match) => {
    const [, indent = '', info = '', body = ''] = match;
    const before = text.slice(0, match.index);
    const [language = '', file] = info.trim().split(/\s+/);
    return {
      page,
      line: before.split('\n').length,
      language,
      file,
      text: body.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
      directive: toDirective(DIRECTIVE.exec(before)),
    };
  });
}

function toDirective(match: RegExpExecArray | null): Directive {
  const [, kind, value = ''] = match ?? [];
  if (kind === 'not run') return { kind: 'not-run', reason: value };
  if (kind === 'background') return { kind: 'background', until: value };
  return kind === 'exits' ? { kind: 'exits', code: Number(value) } : { kind: 'run' };
}
