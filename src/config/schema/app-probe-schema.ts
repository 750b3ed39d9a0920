/** The schema of what the admin port asks the app for the kubelet, which reaches no port on loopback. */
import * as z from 'zod';
import { scalar } from './scalars.ts';

/** What is asked for: the three probes of a container. Its hooks do something, and everybody may ask here. */
const APP_PROBE_KINDS = ['livez', 'readyz', 'startupz'] as const;

const CONTAINER = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9110 §5.5, and what else Node would not send. */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const EXAMPLE = 'http://127.0.0.1:3000/healthz';

/** One question. */
export const appProbe = z.strictObject({
  container: z
    .string()
    .regex(CONTAINER, 'a container name is 1 to 63 lower-case letters, digits and dashes')
    .describe('Whose probe it is.'),
  kind: z.enum(APP_PROBE_KINDS).describe('Which of its probes.'),
  url: scalar<string>(parseUrl, EXAMPLE).describe(
    'What is asked: http:// or https:// (whose certificate is not looked at, as the kubelet does), or tcp://host:port, which is only connected to.',
  ),
  headers: z
    .array(
      z.strictObject({
        name: z.string().regex(FIELD_NAME, 'a header name is a token').describe('Host, too.'),
        value: z
          .string()
          .regex(FIELD_VALUE, 'a header value has no line ends or other control characters')
          .describe('Its value.'),
      }),
    )
    .default([])
    .describe('Header fields that it is asked with, as in `httpGet.httpHeaders`.'),
});

/** The URL is not shown where it could hold a password. */
function parseUrl(text: string): string | { readonly problem: string } {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:', 'tcp:'].includes(url.protocol) || url.hostname === '')
    return { problem: `this is no http, https or tcp URL; write for example ${EXAMPLE} or tcp://127.0.0.1:3000` };
  if (url.username !== '' || url.password !== '') return { problem: 'the URL of a probe has no user or password' };
  if (url.port === '0') return { problem: 'port 0 cannot be connected to' };
  if (url.protocol === 'tcp:' && (url.port === '' || !['', '/'].includes(url.pathname) || url.search !== ''))
    return { problem: 'tcp:// is followed by a host and a port only, for example tcp://127.0.0.1:3000' };
  return url.href;
}
