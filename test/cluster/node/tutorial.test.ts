import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HELM } from '../../support/chart.ts';
import { findTool } from '../../support/cluster/program.ts';
import { type Block, readBlocks } from '../../support/doc-blocks.ts';
import { expectOutput, findMissingLine } from '../../support/doc-output.ts';
import { DocSession } from '../../support/doc-session.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { APP_IMAGE, SIDEGATE_IMAGE } from '../../support/node/settings.ts';
import { CHART_NAMESPACE, type NodeCluster, useNode } from '../../support/node/use-node.ts';

const ROOT = resolve(import.meta.dirname, '..', '..', '..');
const PAGE = 'docs/tutorials/kubernetes.md';
const blocks = readBlocks(PAGE, join(ROOT, PAGE));
/** The images of the page, and those of the node that stand for them: nothing can be pulled or pushed. */
const IMAGES = {
  'registry.example.com/sidegate:0.1.0': `${SIDEGATE_IMAGE.repository}:${SIDEGATE_IMAGE.tag}`,
  'docker.io/library/node:24-slim': APP_IMAGE,
};
/** What the page creates beside the chart. */
const CREATED = 'deployment/billing service/billing configmap/my-gate secret/billing-webhook networkpolicy/billing-sidecar-only';

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node, the tutorial for Kubernetes', () => {
  let node: NodeCluster;
  let session: DocSession;
  let output = '';

  beforeAll(async () => {
    node = await useNode();
    await removeChart();
    for (const [name, source] of Object.entries(IMAGES)) await node.tagImage(source, name);
    session = new DocSession({
      commands: {
        // The image of the Dockerfile is on the node already.
        docker: 'test -f Dockerfile',
        helm: `exec '${HELM}' "$@"`,
        kubectl: `exec '${findTool('kubectl-v1.37.1')}' "$@"`,
      },
    });
    mkdirSync(join(session.folder, '.kube'));
    writeFileSync(join(session.folder, '.kube', 'config'), node.kubeconfig());
    for (const name of ['chart', 'Dockerfile']) symlinkSync(join(ROOT, name), join(session.folder, name));
    await session.prepare(blocks.map(({ text }) => text));
  });
  afterAll(async () => {
    await session?.run({ text: `kubectl delete --ignore-not-found ${CREATED}` });
    await session?.close();
    if (node !== undefined) await removeChart();
    await node?.cleanUp();
  });

  test.each(blocks.map((block, index) => [`${block.line}`, block, index] as const))(
    'works as it shows, line %s',
    async (_line, block, index) => {
      if (block.file !== undefined) session.write(block);
      else if (block.language === 'sh') output = await runBlock(block, blocks[index + 1]);
      else if (block.language === 'text') expectOutput(session.localize(block.text), output, `${PAGE}:${block.line}`);
    },
  );

  /** Other files expect no chart, or their own. */
  async function removeChart(): Promise<void> {
    await node.uninstallChart();
    await node.waitFor(CHART_NAMESPACE, async () => {
      const { status } = await node.request('DELETE', `/api/v1/namespaces/${CHART_NAMESPACE}`);
      return status === 404;
    });
  }

  async function runBlock(block: Block, next: Block | undefined): Promise<string> {
    if (block.text.startsWith('kubectl port-forward')) return (await session.start(block, 'Forwarding from')).output;
    // Log lines are written some time after the responses.
    if (block.text.startsWith('kubectl logs'))
      return node.waitFor('default', async () => {
        const printed = (await session.run(block)).output;
        return findMissingLine(next?.text ?? '', printed) === undefined && printed;
      });
    const { code, output: printed } = await session.run(block);
    const report = code === 0 ? '' : `${await node.report('default')}\n${await node.report(CHART_NAMESPACE)}`;
    expect(code, `${PAGE}:${block.line} printed ${printed}\n${report}`).toBe(0);
    return printed;
  }
});
