/** The targets that are functions of bytes. */
import type { Target } from './guided.ts';
import { CONFIG } from './parsers/config.ts';
import { HTPASSWD } from './parsers/htpasswd.ts';
import { PROXY_HEADER } from './parsers/proxy-header.ts';
import { REQUEST_HEAD } from './parsers/request-head.ts';
import { RESPONSE } from './parsers/response.ts';
import { REVIEW } from './parsers/review.ts';

/** Each with the number of inputs that CI runs: a few seconds each on one core. */
export const PARSERS: readonly { readonly target: Target; readonly inputs: number }[] = [
  { target: PROXY_HEADER, inputs: 50_000 },
  { target: REQUEST_HEAD, inputs: 50_000 },
  { target: RESPONSE, inputs: 30_000 },
  { target: HTPASSWD, inputs: 40_000 },
  { target: REVIEW, inputs: 10_000 },
  { target: CONFIG, inputs: 600 },
];
