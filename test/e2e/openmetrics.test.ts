import { beforeAll, describe, expect, test } from 'vitest';
import { toFormat } from '../../src/admin/api/health.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { exercise, startMonitoredGate, TRACE_ID, toSeries } from '../support/monitored-gate.ts';

/** What Prometheus 2.42 and 3.5 send. */
const PROMETHEUS = [
  'application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1',
  'application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2',
];

describe('the format of the metrics', () => {
  test.each<[accept: string | undefined, format: string]>([
    ...PROMETHEUS.map((accept): [string, string] => [accept, 'openmetrics']),
    ['application/openmetrics-text', 'openmetrics'],
    ['Application/OpenMetrics-Text; Version="1.0.0"; charset=utf-8', 'openmetrics'],
    ['text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.9', 'openmetrics'],
    [undefined, 'text'],
    ['', 'text'],
    ['*/*', 'text'],
    ['text/plain', 'text'],
    ['application/*', 'text'],
    ['application/openmetrics-text;version=0.0.1', 'text'],
    ['application/openmetrics-text;version=2.0.0', 'text'],
    ['application/openmetrics-text;version=1.0.0;q=0', 'text'],
    ['application/openmetrics-text;version=1.0.0;q=all', 'text'],
    ['application/openmetrics-text;version=1.0.0;q=0.4,text/plain;q=0.5', 'text'],
  ])('for Accept: %s is %s', (accept, format) => {
    expect(toFormat(accept)).toBe(format);
  });
});

describe('a scrape', () => {
  const app = useApp();
  const gate = useGate(() => startMonitoredGate(app.port));
  beforeAll(() => exercise(gate, app.port, Date.now()));
  const scrape = (accept: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${gate.adminPort}/metrics`, { headers: { Accept: accept } });

  test('returns the same series in OpenMetrics and text, with Vary: Accept', async () => {
    const [open, text] = [await scrape(PROMETHEUS[0] ?? ''), await scrape('*/*')];
    expect(open.headers.get('content-type')).toBe('application/openmetrics-text; version=1.0.0; charset=utf-8');
    expect(text.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    for (const answer of [open, text]) expect(answer.headers.get('vary')).toBe('Accept');
    const body = await open.text();
    expect(toSeries(body)).toEqual(toSeries(await text.text()));
    expect(body.endsWith('\n# EOF\n')).toBe(true);
    expect(body).toContain('# TYPE sidegate_http_requests counter\n# HELP sidegate_http_requests Responses sent');
  });

  test('has exemplars with the trace of a request in OpenMetrics, but not in text', async () => {
    const text = await (await scrape('*/*')).text();
    const open = await (await scrape('application/openmetrics-text')).text();
    expect(text).not.toContain('trace_id');
    for (const name of ['http_request_duration', 'upstream_duration', 'overhead']) {
      const [, value = '', at = ''] =
        new RegExp(
          `^sidegate_${name}_seconds_bucket\\{le="[^"]+",route="billing"\\} \\d+ # \\{trace_id="${TRACE_ID}"\\} ([0-9.e-]+) ([0-9.]+)$`,
          'm',
        ).exec(open) ?? [];
      expect(Number(value), name).toBeGreaterThan(0);
      expect(Math.abs(Number(at) - Date.now() / 1000)).toBeLessThan(60);
    }
  });

  test('shows the forward proxy under its own name', async () => {
    const text = await (await scrape('*/*')).text();
    expect(text).toContain('sidegate_http_requests_total{route="_proxy",method="GET",code="200"} 1');
    expect(text).toContain('sidegate_http_requests_total{route="_proxy",method="GET",code="407"} 1');
    expect(text).not.toContain('route="_unmatched",method="GET",code="407"');
  });

  test('shows versions, and the commit if it is known', async () => {
    const text = await (await scrape('*/*')).text();
    expect(text).toContain(`sidegate_build_info{version="test",revision="unknown",node="${process.versions.node}"} 1`);
  });
});
