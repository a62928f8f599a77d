// The screens, in the order of the menu. router.js says how one is added.

import { screen as event } from "./event.js";
import { screen as forgetting } from "./forgetting.js";
import { screen as graph } from "./graph.js";
import { screen as operators } from "./operators.js";
import { screen as overview } from "./overview.js";
import { screen as people } from "./people.js";
import { screen as recall } from "./recall.js";
import { screen as topics } from "./topics.js";

export const SCREENS = [overview, people, recall, event, topics, graph, forgetting, operators];
