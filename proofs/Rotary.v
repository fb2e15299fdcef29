(** Rotary encodings: Theorem 1 for the encoding that turns queries and keys.

    A rotary encoding turns each pair of numbers in the query and in the key by an angle that grows
    with the row and the column of the pixel; in an axial one each pair turns with the row alone or
    with the column alone.  Heads whose queries and keys are the same at all pixels (zero weights,
    all of it in the biases) see the shift only. *)

From mathcomp Require Import all_ssreflect all_algebra reals sequences exp trigo.
From AttnConv Require Import Attention Lemma1 Lemma2 Theorem1 TwoNumbers.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Encoding.
Variables (R : realType) (n : nat).

(** The angle at the pixel [k] of a pair with the frequencies [w] of rows and columns. *)
Definition angle (w : R * R) (k : pixel) : R := w.1 * k.1%:~R + w.2 * k.2%:~R.

(** The rotation of a row vector of two numbers by the angle [t]. *)
Definition rotation (t : R) : 'M[R]_2 :=
  \matrix_(i, j) (if i == j then cos t else (-1) ^+ i * sin t).

(** A query or key of [n] pairs, each turned by its angle at the pixel [k]. *)
Definition rotate (omega : 'I_n -> R * R) (k : pixel) (x : 'rV[R]_(n * 2)) : 'rV[R]_(n * 2) :=
  mxvec (\matrix_j (row j (vec_mx x) *m rotation (angle (omega j) k))).

(** The scores of a head with a rotary encoding. *)
Definition rotary_scores Din (omega : 'I_n -> R * R) (Wqry Wkey : 'M[R]_(Din, n * 2))
    (bqry bkey : 'rV_(n * 2)) (X : image R Din) (q k : pixel) : R :=
  (rotate omega q (X q *m Wqry + bqry) *m (rotate omega k (X k *m Wkey + bkey))^T) 0 0.

(** Every pair turns with the row alone or with the column alone. *)
Definition axial (omega : 'I_n -> R * R) : bool :=
  [forall j, ((omega j).1 == 0) || ((omega j).2 == 0)].

Lemma angleD w k k' : angle w (k + k') = angle w k + angle w k'.
Proof. by rewrite /angle !rmorphD !mulrDr addrACA. Qed.

Lemma angleN w k : angle w (- k) = - angle w k.
Proof. by rewrite /angle !rmorphN !mulrN opprD. Qed.

Lemma rotationD s t : rotation s *m rotation t = rotation (s + t).
Proof.
apply/matrixP => i j; rewrite !mxE !big_ord_recl big_ord0 !mxE addr0 cosD sinD.
case: i j => [[|[|//]] ?] [[|[|//]] ?]; rewrite /= ?expr0 ?expr1 ?mul1r ?mulN1r //.
- by rewrite mulrN.
- by rewrite addrC.
- by rewrite mulrN mulNr -opprD.
- by rewrite mulNr addrC.
Qed.

Lemma tr_rotation t : (rotation t)^T = rotation (- t).
Proof.
apply/matrixP => i j; rewrite !mxE cosN sinN eq_sym.
by case: i j => [[|[|//]] ?] [[|[|//]] ?]; rewrite /= ?expr0 ?expr1 ?mul1r ?mulN1r ?opprK.
Qed.

Lemma row_vec_rotate omega k x j :
  row j (vec_mx (rotate omega k x)) = row j (vec_mx x) *m rotation (angle (omega j) k).
Proof. by rewrite mxvecK rowK. Qed.

(** The inner product of turned pairs depends on the difference of their angles. *)
Lemma rotary_scoresE Din (omega : 'I_n -> R * R) (Wqry Wkey : 'M_(Din, n * 2)) bqry bkey X q k :
  rotary_scores omega Wqry Wkey bqry bkey X q k =
  \sum_j (row j (vec_mx (X q *m Wqry + bqry)) *m rotation (- angle (omega j) (k - q))
          *m (row j (vec_mx (X k *m Wkey + bkey)))^T) 0 0.
Proof.
rewrite /rotary_scores mxE (reindex _ (curry_mxvec_bij _ _)) /=.
set G := fun j c => rotate omega q (X q *m Wqry + bqry) 0 (mxvec_index j c) *
  rotate omega k (X k *m Wkey + bkey) 0 (mxvec_index j c).
transitivity (\sum_j \sum_c G j c).
  by rewrite pair_bigA; apply: eq_bigr => -[j c] _; rewrite [in LHS]mxE.
apply: eq_bigr => j _; rewrite -angleN opprB angleD angleN -rotationD.
rewrite -tr_rotation mulmxA -mulmxA -trmx_mul -!row_vec_rotate mxE.
by apply: eq_bigr => c _; rewrite /G !mxE.
Qed.
End Encoding.

Section Head.
Variables (R : realType) (n : nat) (omega : 'I_n -> R * R).

(** The key and the query of a head with the shift [Delta]: each pair of the key is [sqrt a_j (1,
    0)]; the query is [alpha] times the key turned by the encoding of [Delta]. *)
Definition head_key (a : 'I_n -> R) : 'rV[R]_(n * 2) :=
  mxvec (\matrix_j (Num.sqrt (a j) *: delta_mx 0 0)).
Definition head_query a alpha Delta : 'rV[R]_(n * 2) := alpha *: rotate omega Delta (head_key a).
Definition head_scores Din a alpha Delta : image R Din -> pixel -> pixel -> R :=
  rotary_scores omega 0 0 (head_query a alpha Delta) (head_key a).

(** ** The scores of a rotary head

    Let queries and keys be the same at all pixels: the key's pair [j] is [sqrt a_j (1, 0)], and the
    query is [alpha] times the key, turned by the encoding of [Delta].  The score from [q] to [k] is
    [alpha sum_j a_j cos(angle_j (k - q - Delta))], so it depends on the shift [k - q] only. *)
Theorem rotary_head Din a alpha Delta (X : image R Din) q k : (forall j, 0 <= a j) ->
  head_scores a alpha Delta X q k =
  alpha * \sum_j a j * cos (angle (omega j) (k - q - Delta)).
Proof.
move=> a0; rewrite /head_scores rotary_scoresE mulr_sumr; apply: eq_bigr => j _.
rewrite !mulmx0 !add0r /head_query linearZ [row j _]linearZ /= row_vec_rotate.
rewrite /head_key mxvecK !rowK -!scalemxAl [(_ *: _)^T]linearZ /= trmx_delta -scalemxAr.
rewrite -(mulmxA (delta_mx 0 0)) rotationD mxE; congr (_ * _).
rewrite scalerA -expr2 sqr_sqrtr // -rowE -colE !mxE /=; congr (_ * _).
by rewrite -cosN opprD opprK addrC [angle _ (k - q - Delta)]angleD angleN.
Qed.

(** By how much the score falls from the head's shift to the shift [u] from there. *)
Definition gap (a : 'I_n -> R) (u : shift) : R :=
  \sum_j a j * (1 - cos (angle (omega j) u)).

(** Every pair returns to where it was. *)
Definition common_period (u : shift) : Prop := forall j, cos (angle (omega j) u) = 1.

Lemma gap_ge0 a u : (forall j, 0 <= a j) -> 0 <= gap a u.
Proof. by move=> a0; apply: sumr_ge0 => j _; rewrite mulr_ge0 // subr_ge0 cos_le1. Qed.

Lemma gap_zero a : gap a 0 = 0.
Proof. by rewrite /gap big1 // => j _; rewrite /angle !mulr0 addr0 cos0 subrr mulr0. Qed.

Lemma head_scores_gap Din a alpha Delta (X : image R Din) q k : (forall j, 0 <= a j) ->
  head_scores a alpha Delta X q k = alpha * (\sum_j a j) - alpha * gap a (k - q - Delta).
Proof.
move=> a0; rewrite rotary_head // -mulrBr -sumrB; congr (_ * _); apply: eq_bigr => j _.
by rewrite mulrBr mulr1 opprB [RHS]addrC subrK.
Qed.

(** ** The gap between two shifts

    The score at the shift [Delta] exceeds that at [Delta + u] by [alpha sum_j a_j (1 - cos(angle_j
    u))].  With positive [a_j] this is never negative, and zero (for [alpha != 0]) only if [u] is a
    common period: if every one of the cosines is 1. *)
Theorem rotary_gap Din a alpha Delta (X : image R Din) q u : (forall j, 0 < a j) ->
  let A := head_scores a alpha Delta X q in
  [/\ A (q + Delta) - A (q + Delta + u) = alpha * gap a u,
      0 <= gap a u & gap a u = 0 <-> common_period u].
Proof.
move=> a0 A; have a0' j : 0 <= a j by apply: ltW.
split; last split; first 2 last.
- move=> gap0 j; apply/eqP; rewrite eq_sym -subr_eq0.
  have /psumr_eq0P : forall j, true -> 0 <= a j * (1 - cos (angle (omega j) u)).
    by move=> i _; rewrite mulr_ge0 // subr_ge0 cos_le1.
  by move=> /(_ gap0 j isT)/eqP; rewrite mulf_eq0 gt_eqF.
- by move=> period; rewrite /gap big1 // => j _; rewrite period subrr mulr0.
- have here : q + Delta - q - Delta = 0 by rewrite [q + _]addrC addrK subrr.
  have there : q + Delta + u - q - Delta = u by rewrite [_ + u]addrC -addrA -opprD addrK.
  by rewrite /A !head_scores_gap // here there gap_zero mulr0 subr0 opprB addrCA subrr addr0.
- exact: gap_ge0.
Qed.

(** The shifts between two pixels of an image, and the smallest gap there: the largest possible gap
    is [2 sum_j a_j]. *)
Definition offsets (H Wd : nat) : seq shift :=
  [seq u <- rectangle (- H%:Z, - Wd%:Z) (H + H) (Wd + Wd) |
   [&& u != 0, `|u.1| < H%:Z & `|u.2| < Wd%:Z]].
Definition gamma (a : 'I_n -> R) (H Wd : nat) : R :=
  \big[Num.min/2%:R * \sum_j a j]_(u <- offsets H Wd) gap a u.
Definition separates (H Wd : nat) : Prop :=
  forall u : shift, u != 0 -> `|u.1| < H%:Z -> `|u.2| < Wd%:Z -> ~ common_period u.

Lemma mem_offsets H Wd u : (u \in offsets H Wd) = [&& u != 0, `|u.1| < H%:Z & `|u.2| < Wd%:Z].
Proof.
rewrite mem_filter; case: and3P => //= -[_ u1 u2]; rewrite mem_rectangle /=.
by rewrite !PoszD !addKr; move: u1 u2; rewrite !ltr_norml => /andP[/ltW-> ->] /andP[/ltW-> ->].
Qed.

Lemma gamma_le a H Wd u : u \in offsets H Wd -> gamma a H Wd <= gap a u.
Proof.
rewrite /gamma; elim: (offsets H Wd) => // v s IH; rewrite inE big_cons le_minl.
by case/orP => [/eqP->|/IH->]; rewrite ?lexx ?orbT.
Qed.

Lemma gamma_ge0 a H Wd : (forall j, 0 <= a j) -> 0 <= gamma a H Wd.
Proof.
move=> a0; apply: (big_ind (fun x => 0 <= x)) => [|x y x0 y0|u _].
- by rewrite mulr_ge0 ?ler0n ?sumr_ge0.
- by rewrite le_minr x0.
- exact: gap_ge0.
Qed.

Lemma gap_le_total a u : (forall j, 0 <= a j) -> gap a u <= 2%:R * \sum_j a j.
Proof.
move=> a0; rewrite mulr_sumr; apply: ler_sum => j _; rewrite mulrC ler_wpmul2r //.
by rewrite ler_subl_addl -[leLHS]add0r mulr2n addrA ler_add2r -ler_subl_addr sub0r cos_geN1.
Qed.

(** ** The smallest gap

    With positive [a_j], [gamma] is the smallest gap between two different pixels of an [H x Wd]
    image, and it is positive if and only if the encoding separates the shifts there: if no shift
    between two different pixels is a common period. *)
Theorem rotary_gamma a H Wd : (0 < n)%N -> (forall j, 0 < a j) ->
  [/\ forall u, u \in offsets H Wd -> gamma a H Wd <= gap a u,
      (1 < H * Wd)%N -> exists2 u, u \in offsets H Wd & gamma a H Wd = gap a u &
      0 < gamma a H Wd <-> separates H Wd].
Proof.
move=> n0 a0; have a0' j : 0 <= a j by apply: ltW.
have min : (gamma a H Wd = 2%:R * \sum_j a j) \/
    exists2 u, u \in offsets H Wd & gamma a H Wd = gap a u.
  rewrite /gamma; elim: (offsets H Wd) => [|v s IH]; first by left; rewrite big_nil.
  rewrite big_cons minEle; case: ifP => _; first by right; exists v; rewrite ?mem_head.
  by case: IH => [->|[u us ->]]; [left | right; exists u; rewrite // inE us orbT].
split; first exact: gamma_le.
  move=> HW; case: min => // total.
  have [u uS] : exists u, u \in offsets H Wd.
    have [H1|H1] := ltnP 1 H; [exists (1, 0) | exists (0, 1)]; rewrite mem_offsets.
      by apply/and3P; split=> //; case: Wd HW {total} => [|//]; rewrite muln0.
    by case: H H1 HW {total} => [|[|//]] //; rewrite mul1n => _ W1; apply/and3P; split.
  exists u => //; apply/eqP; rewrite eq_le gamma_le //= total; exact: gap_le_total.
split=> [gamma0 u u0 u1 u2 period|sep].
  have uS : u \in offsets H Wd by rewrite mem_offsets u0 u1 u2.
  have := lt_le_trans gamma0 (gamma_le a uS).
  by rewrite /gap big1 ?ltxx // => j _; rewrite period subrr mulr0.
case: min => [->|[u]].
  rewrite mulr_gt0 ?ltr0n // (bigD1 (Ordinal n0)) //= ltr_paddr ?sumr_ge0 //.
rewrite mem_offsets => /and3P[u0 u1 u2] ->; rewrite lt_neqAle gap_ge0 // andbT eq_sym.
have [_ _ [period _]] := @rotary_gap 0 a 1 0 (fun _ => 0) 0 u a0.
by apply/eqP => /period; apply: sep.
Qed.
End Head.

(** Over a rectangle, the softmax of a score of the row plus one of the column is a product. *)
Lemma softmax_product (R : realType) o H Wd (r c : int -> R) k :
  softmax (rectangle o H Wd) (fun k => r k.1 + c k.2) k =
  softmax (rectangle o H 1) (fun k => r k.1) k * softmax (rectangle o 1 Wd) (fun k => c k.2) k.
Proof.
rewrite /softmax mulf_div -expRD; congr (_ / _); rewrite !big_allpairs_dep.
under [X in X * _]eq_bigr do rewrite big_seq1.
rewrite big_seq1 big_distrlr; apply: eq_bigr => i _; apply: eq_bigr => j _ /=.
by rewrite expRD.
Qed.

Lemma product_ge (R : realType) (x y : R) : x <= 1 -> y <= 1 -> x + y - 1 <= x * y.
Proof.
move=> x1 y1; rewrite -subr_ge0 (_ : _ - _ = (1 - x) * (1 - y)) ?mulr_ge0 ?subr_ge0 //.
rewrite mulrBl mul1r mulrBr mulr1 !opprB opprD [RHS]addrC -addrA; congr (_ + _).
by rewrite addrCA.
Qed.

Section Attention.
Variables (R : realType) (n : nat) (omega : 'I_n -> R * R) (a : 'I_n -> R).
Hypothesis a0 : forall j, 0 <= a j.

(** An axial encoding sees rows and columns apart: its bound has the [H + Wd - 2] other rows and
    columns in place of the [H Wd - 1] other pixels. *)
Definition others (H Wd : nat) : nat :=
  if axial omega then (H.-1 + Wd.-1)%N else (H * Wd).-1.

Lemma gap_axial u : axial omega -> gap omega a u = gap omega a (u.1, 0) + gap omega a (0, u.2).
Proof.
move=> /forallP ax; rewrite /gap -big_split; apply: eq_bigr => j _ /=; rewrite -mulrDr.
by congr (_ * _); rewrite /angle /=; case/orP: (ax j) => /eqP->;
  rewrite !(mul0r, mulr0, addr0, add0r, cos0, subrr).
Qed.

Lemma offsets_rectangle o H Wd k c : k \in rectangle o H Wd -> c \in rectangle o H Wd -> k != c ->
  k - c \in offsets H Wd.
Proof.
rewrite !mem_rectangle => /andP[k1 k2] /andP[c1 c2] kc; rewrite mem_offsets subr_eq0 kc /=.
have near (x y z : int) m : x <= y < x + m%:Z -> x <= z < x + m%:Z -> `|y - z| < m%:Z.
  move=> /andP[xy ym] /andP[xz zm]; rewrite ltr_norml.
  rewrite ltr_subr_addr ltr_subl_addr [_ + z]addrC ltr_subl_addr.
  by rewrite (lt_le_trans zm) ?ler_add2r // (lt_le_trans ym) // addrC ler_add2l.
by rewrite (near o.1) // (near o.2).
Qed.

(** ** Lemma 2 for rotary encodings

    On an [H x Wd] image in which the pixel [q + Delta] lies, that pixel gets at least [1 - T
    e^(-alpha gamma)], so all others together get at most [T e^(-alpha gamma)], where [T] is [H + Wd
    - 2] for an axial encoding and [H Wd - 1] for any other. *)
Theorem rotary_attention Din alpha Delta (X : image R Din) o H Wd q :
  let S := rectangle o H Wd in
  0 <= alpha -> q + Delta \in S ->
  1 - (others H Wd)%:R * expR (- (alpha * gamma omega a H Wd)) <=
  softmax S (head_scores omega a alpha Delta X q) (q + Delta).
Proof.
move=> S alpha0 cS; set c := q + Delta; pose x := alpha * gamma omega a H Wd.
have x0 : 0 <= x by rewrite mulr_ge0 ?gamma_ge0.
have S_uniq : uniq S := uniq_rectangle _ _ _.
pose A k := - (alpha * gap omega a (k - c)).
have -> : softmax S (head_scores omega a alpha Delta X q) c = softmax S A c.
  rewrite -[RHS](softmax_shift _ _ (alpha * \sum_j a j)) /softmax.
  have score k : head_scores omega a alpha Delta X q k = A k + alpha * (\sum_j a j).
    by rewrite head_scores_gap // /A /c opprD addrA addrC.
  by rewrite score; congr (_ / _); apply: eq_bigr => k _; rewrite score.
(* a pixel at another shift has a score that is lower by [x] at least *)
have lower u : u \in offsets H Wd -> - (alpha * gap omega a u) + x <= 0.
  by move=> uS; rewrite addrC subr_le0 ler_wpmul2l ?gamma_le.
rewrite /others; case: ifP => [ax|_]; last first.
  rewrite -(size_rectangle o); apply: lemma_2_margin => // k kS kc.
  by rewrite /A subrr gap_zero mulr0 oppr0 lower // (offsets_rectangle kS cS).
(* an axial encoding: a softmax over the rows and one over the columns *)
pose r i := - (alpha * gap omega a (i - c.1, 0)); pose s j := - (alpha * gap omega a (0, j - c.2)).
have -> : softmax S A c = softmax S (fun k => r k.1 + s k.2) c.
  have score k : A k = r k.1 + s k.2 by rewrite /A gap_axial // mulrDr opprD.
  by rewrite /softmax score; congr (_ / _); apply: eq_bigr => k _; rewrite score.
rewrite softmax_product; move: (cS); rewrite mem_rectangle -/c => /andP[c1 c2].
have one (z : int) : z <= z < z + 1%:Z by rewrite lexx ltr_addl.
have c1S : (c.1, o.2) \in rectangle o H 1 by rewrite mem_rectangle c1 one.
have c2S : (o.1, c.2) \in rectangle o 1 Wd by rewrite mem_rectangle c2 one.
set p1 := softmax _ _ c; set p2 := softmax _ _ c.
have p1_le : p1 <= 1 := softmax_le1 (fun k => r k.1) c1S.
have p2_le : p2 <= 1 := softmax_le1 (fun k => s k.2) c2S.
have same (y z : int) : z <= y < z + 1%:Z -> y = z.
  by move=> /andP[zy yz]; apply/eqP; rewrite eq_le zy andbT -ltz_addr1.
have row_le : 1 - (H.-1)%:R * expR (- x) <= p1.
  rewrite -[X in X.-1]muln1 -(size_rectangle o H 1).
  apply: (@lemma_2_margin _ _ (fun k => r k.1) (uniq_rectangle _ _ _) (c.1, o.2)) => //.
  case=> i j; rewrite mem_rectangle => /andP[iH /same /= jo].
  rewrite jo xpair_eqE eqxx andbT => ic; rewrite /r /= subrr gap_zero mulr0 oppr0 lower //.
  have -> : (i - c.1, 0) = (i, c.2) - c by apply/eqP; rewrite xpair_eqE subrr !eqxx.
  apply: offsets_rectangle (cS) _; first by rewrite mem_rectangle iH.
  by rewrite [c]surjective_pairing xpair_eqE negb_and ic.
have column_le : 1 - (Wd.-1)%:R * expR (- x) <= p2.
  rewrite -[X in X.-1]mul1n -(size_rectangle o 1 Wd).
  apply: (@lemma_2_margin _ _ (fun k => s k.2) (uniq_rectangle _ _ _) (o.1, c.2)) => //.
  case=> i j; rewrite mem_rectangle => /andP[/same /= io jW].
  rewrite io xpair_eqE eqxx => jc; rewrite /s /= subrr gap_zero mulr0 oppr0 lower //.
  have -> : (0, j - c.2) = (c.1, j) - c by apply/eqP; rewrite xpair_eqE subrr !eqxx.
  apply: offsets_rectangle (cS) _; first by rewrite mem_rectangle c1 jW.
  by rewrite [X in _ != X]surjective_pairing xpair_eqE eqxx.
apply: le_trans (product_ge p1_le p2_le); rewrite ler_subr_addr natrD mulrDl.
by apply: le_trans (ler_add row_le column_le); rewrite addrACA -opprD addrAC.
Qed.
End Attention.

Section Theorem1.
Variables (R : realType) (n N Din Dh Dout m : nat) (omega : 'I_n -> R * R) (a : 'I_n -> R).
Variables (Delta : seq shift) (f : 'I_N -> shift) (g : 'I_m -> 'I_Dout).
Variables (W : shift -> 'M[R]_(Din, m)) (b : 'rV[R]_m).
Hypothesis a0 : forall j, 0 <= a j.

(** The layer: all heads have one [alpha]; the values are those of Lemma 1 at the outputs [g]. *)
Definition rotary_conv_layer alpha S (X : image R Din) : image R Dout :=
  mhsa S (probabilities S (fun h => head_scores omega a alpha (f h) X))
    (wide_values Dh (fun h => W (f h))) (wide_out R N Dh g) (b *m select R g) X.

Hypotheses (mDh : (m <= Dh)%N) (g_inj : injective g).
Hypothesis f_Delta : perm_eq (codom f) Delta.

(** ** Theorem 1 for rotary encodings, the gap

    Let [Delta] be any list of shifts, numbered by the heads, and [W] any kernel over it with [m <=
    D_h] output channels.  At every interior query of an [H x Wd] image with numbers of size at most
    [B], the layer differs from the convolution, in output channel [o], by at most [2 T e^(-alpha
    gamma) B sum_delta sum_i |W_delta,i,o|], with [T] of [rotary_attention]. *)
Theorem theorem_1_rotary_gap (alpha B : R) (o : 'I_m) p H Wd (X : image R Din) q :
  let S := rectangle p H Wd in
  0 <= alpha -> (forall k i, k \in S -> `|X k 0 i| <= B) -> interior S Delta q ->
  `|rotary_conv_layer alpha S X q 0 (g o) - conv Delta W b X q 0 o| <=
  2%:R * ((others omega H Wd)%:R * expR (- (alpha * gamma omega a H Wd))) * B *
  kernel_norm Delta W o.
Proof.
move=> S alpha0 XB qS; have fS h : q + f h \in S by apply: qS; rewrite -(perm_mem f_Delta) codom_f.
apply: nearly_hard_heads => // [|h k kS|h|h].
- exact: uniq_rectangle.
- exact/ltW/softmax_gt0.
- exact: softmax_sum (fS h).
- exact: rotary_attention.
Qed.

(** ** Theorem 1 for rotary encodings, with the [alpha] that suffices

    For every kernel as above, image size with [gamma > 0], bound [B] of the images and [eps > 0]:
    if no output channel's weights sum to more than [M] in size, then with any [alpha >= ln (1 + 2 T
    B M / eps) / gamma] the layer is within [eps] of the convolution, at every interior query of
    images of this size. *)
Theorem theorem_1_rotary_alpha (alpha B M eps : R) H Wd :
  let T := others omega H Wd in
  0 <= B -> 0 < eps -> (forall o, kernel_norm Delta W o <= M) -> 0 < gamma omega a H Wd ->
  ln (1 + 2%:R * T%:R * B * M / eps) / gamma omega a H Wd <= alpha ->
  forall p (X : image R Din) q o, let S := rectangle p H Wd in
  (forall k i, k \in S -> `|X k 0 i| <= B) -> interior S Delta q ->
  `|rotary_conv_layer alpha S X q 0 (g o) - conv Delta W b X q 0 o| < eps.
Proof.
move=> T B0 eps0 WM gamma0 large p X q o S XB qS.
have M0 : 0 <= M.
  by apply: le_trans (WM o); do 2![apply: sumr_ge0 => ? _]; apply: normr_ge0.
pose C := 2%:R * T%:R * B * M; have C0 : 0 <= C by rewrite !mulr_ge0 ?ler0n.
have Ceps0 : 0 <= C / eps by rewrite divr_ge0 // ltW.
have lt01 : 0 < 1 + C / eps := ltr_paddr Ceps0 ltr01.
have alpha0 : 0 <= alpha.
  by apply: le_trans large; rewrite divr_ge0 ?(ltW gamma0) // ln_ge0 // ler_addl.
apply: le_lt_trans (theorem_1_rotary_gap o alpha0 XB qS) _.
move: large; rewrite ler_pdivr_mulr // -/C => large.
have small : expR (- (alpha * gamma omega a H Wd)) <= (1 + C / eps)^-1.
  by rewrite expRN ler_pinv ?inE ?unitf_gt0 ?expR_gt0 // -[leLHS]lnK ?posrE // ler_expR.
apply: (@le_lt_trans _ _ (C * (1 + C / eps)^-1)); last first.
  by rewrite ltr_pdivr_mulr // mulrDr mulr1 mulrCA divff ?gt_eqF // mulr1 ltr_addr.
apply: le_trans (ler_wpmul2l C0 small).
rewrite -/T mulrA /C [leRHS]mulrAC [X in X * M]mulrAC ler_wpmul2l ?WM //.
by rewrite !mulr_ge0 ?ler0n // ltW // expR_gt0.
Qed.
End Theorem1.

(** ** Theorem 1 for rotary encodings

    Let a rotary encoding of any [n >= 1] pairs separate the shifts of the padded [H x Wd] image.
    For every [K x K] kernel with [min(D_h, D_out)] output channels, every bound [B] and every [eps
    > 0] there is a self-attention layer with this encoding, [K^2] heads and no weights for queries
    and keys, only biases, that does what [theorem_1] says, on images of this size: at every pixel,
    including those at the border, its outputs are within [eps] of the convolution. *)
Theorem theorem_1_rotary (R : realType) n (omega : 'I_n -> R * R) K H Wd :
  (0 < n)%N -> separates omega (K.-1./2 + H + K./2) (K.-1./2 + Wd + K./2) ->
  forall (Din Dh Dout : nat) (W : shift -> 'M[R]_(Din, minn Dh Dout))
    (b : 'rV_(minn Dh Dout)) (B eps : R),
  0 <= B -> 0 < eps ->
  exists (bqry bkey : 'I_(K * K) -> 'rV[R]_(n * 2)) (Wval : 'I_(K * K) -> 'M_(Din, Dh))
    (Wout : 'M_(K * K * Dh, Dout)) (bout : 'rV_Dout),
  forall X : image R Din,
  let S := padded_grid K.-1./2 K./2 K.-1./2 K./2 H Wd in
  let A h := rotary_scores omega 0 0 (bqry h) (bkey h) X in
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  forall q (o : 'I_(minn Dh Dout)), q \in grid H Wd ->
  `|mhsa S (probabilities S A) Wval Wout bout X q 0 (widen_ord (geq_minr Dh Dout) o)
    - conv (kernel_shifts K K) W b X q 0 o| < eps.
Proof.
move=> n0 sep Din Dh Dout W b B eps B0 eps0; pose Delta := kernel_shifts K K.
pose a (j : 'I_n) : R := 1; have a0 j : 0 < a j := ltr01.
have a0' j : 0 <= a j := ler01.
pose H' := (K.-1./2 + H + K./2)%N; pose Wd' := (K.-1./2 + Wd + K./2)%N.
have [_ _ [_ /(_ sep) gamma0]] := rotary_gamma omega H' Wd' n0 a0.
pose g := widen_ord (geq_minr Dh Dout); pose f (h : 'I_(K * K)) := Delta`_h.
have g_inj : injective g by move=> i j /(congr1 val) /= ij; apply: val_inj.
have f_Delta : perm_eq (codom f) Delta by rewrite /f codom_nth // size_kernel_shifts.
have le_M := kernel_norm_total Delta W.
have close :=
  theorem_1_rotary_alpha b a0' (geq_minl _ _) g_inj f_Delta B0 eps0 le_M gamma0 (lexx _).
set alpha := _ / _ in close.
exists (fun h => head_query omega a alpha (f h)), (fun _ => head_key a).
exists (wide_values Dh (fun h => W (f h))), (wide_out R (K * K) Dh g), (b *m select R g).
by move=> X S A XB q o qI; apply: close => //; apply: interior_padded.
Qed.

(** Refuted: that the sign of the query's turn does not matter.  Turned by the encoding of [-Delta],
    the query gives the pixel [q + Delta] no more than the pixel [q - Delta], so at most half. *)
Theorem rotary_sign_refuted (R : realType) n (omega : 'I_n -> R * R) a Din alpha Delta
    (X : image R Din) S q :
  (forall j, 0 <= a j) -> 0 <= alpha -> Delta != 0 -> uniq S ->
  q + Delta \in S -> q - Delta \in S ->
  softmax S (head_scores omega a alpha (- Delta) X q) (q + Delta) <= 2%:R^-1.
Proof.
move=> a0 alpha0 D0 S_uniq dS oS; have other : q - Delta != q + Delta.
  rewrite (inj_eq (addrI q)); apply: contra D0 => /eqP/(congr1 (fun d => Delta + d)).
  move: Delta {dS oS} => [d1 d2]; rewrite subrr => -[].
  by rewrite -!mulr2n => /esym/eqP + /esym/eqP; rewrite !mulrn_eq0 /= => /eqP-> /eqP->.
apply: (softmax_half S_uniq dS oS other); rewrite !head_scores_gap // opprK.
have -> : q - Delta - q + Delta = 0 by rewrite addrAC subrK subrr.
by rewrite gap_zero mulr0 subr0 ler_subl_addr ler_addl mulr_ge0 ?gap_ge0.
Qed.

(** * Which encodings separate all shifts *)

Section Cosine.
Variable R : realType.
Implicit Type x : R.

Lemma cos_lt1 x : 0 < x < pi *+ 2 -> cos x < 1.
Proof.
move=> /andP[x0 x2]; have -> : x = (x / 2%:R) *+ 2 by rewrite -mulr_natr divfK ?pnatr_eq0.
rewrite cos_mulr2n cos2sin2 ltr_subl_addr -mulr2n ltr_pmuln2r // ltr_subl_addr ltr_addl.
rewrite exprn_gt0 // sin_gt0_pi // divr_gt0 ?ltr0n //=.
by rewrite ltr_pdivr_mulr ?ltr0n // mulr_natr.
Qed.

Lemma cos_eq1 x : 0 <= x -> cos x = 1 -> exists k : nat, x = pi *+ 2 *+ k.
Proof.
move=> x0 cos1; pose P : R := pi *+ 2; have P0 : 0 < P by rewrite pmulrn_lgt0 // pi_gt0.
pose k := `|floor (x / P)|%N; exists k; rewrite -/P.
have kE : k%:R = (floor (x / P))%:~R :> R.
  by rewrite natr_absz ger0_norm // floor_ge0 divr_ge0 // ltW.
have le : P *+ k <= x by rewrite -mulr_natl kE -ler_pdivl_mulr // floor_le.
have lt : x - P *+ k < P.
  rewrite ltr_subl_addr (_ : P + P *+ k = (k%:R + 1) * P); last first.
    by rewrite mulrDl mul1r mulr_natl addrC.
  by rewrite kE -ltr_pdivr_mulr // lt_succ_floor.
apply/eqP; rewrite eq_le le andbT leNgt; apply/negP => more.
have := @cos_lt1 (x - P *+ k); rewrite subr_gt0 more lt => /(_ isT).
by rewrite -(periodicn (@cosD2pi R) k) subrK cos1 ltxx.
Qed.
End Cosine.

Section Period.
Variables (R : realType) (n : nat) (omega : 'I_n -> R * R).

(** ** A common period leaves at most half of the attention

    Let [u] be a common period.  Whatever the queries and keys, if they are the same at all pixels,
    the scores at the shifts [d] and [d + u] are equal; so if both pixels lie in the image, the one
    at [d] gets at most half of the attention. *)
Theorem rotary_common_period Din bqry bkey (X : image R Din) S q d u :
  let A := rotary_scores omega 0 0 bqry bkey X q in
  common_period omega u -> A (q + d + u) = A (q + d) /\
  (u != 0 -> uniq S -> q + d \in S -> q + d + u \in S -> softmax S A (q + d) <= 2%:R^-1).
Proof.
move=> A period; have same : A (q + d + u) = A (q + d).
  rewrite /A !rotary_scoresE; apply: eq_bigr => j _; rewrite !mulmx0 !add0r.
  have cos1 := period j; have sin0 : sin (angle (omega j) u) = 0.
    by apply: cos1sin0; rewrite cos1 normr1.
  pose back k := rotation (- angle (omega j) k); rewrite -/(back _) -/(back (q + d - q)).
  have -> // : back (q + d + u - q) = back (q + d - q).
  rewrite /back addrAC angleD opprD -rotationD -[RHS]mulmx1; congr (_ *m _).
  apply/matrixP => i i'; rewrite !mxE cosN sinN cos1 sin0 oppr0 mulr0.
  by case: eqP.
split; first exact: same.
move=> u0 S_uniq dS uS; have other : q + d + u != q + d.
  by rewrite -subr_eq0 addrAC subrr add0r.
by apply: (softmax_half S_uniq dS uS other); rewrite same.
Qed.
End Period.

(** Refuted: that one pair of numbers suffices in an axial encoding.  The pair turns with the row or
    with the column alone, and so a pixel shares its attention with the one beside it or below it,
    whatever the queries and keys, if they are the same at all pixels. *)
Theorem rotary_one_pair_refuted (R : realType) (omega : 'I_1 -> R * R) Din bqry bkey
    (X : image R Din) S q d :
  axial omega -> uniq S -> q + d \in S -> q + d + (1, 0) \in S -> q + d + (0, 1) \in S ->
  softmax S (rotary_scores omega 0 0 bqry bkey X q) (q + d) <= 2%:R^-1.
Proof.
move=> /forallP /(_ 0) /orP[/eqP w0|/eqP w0] S_uniq dS rowS columnS.
  have [j|_ ->] // := @rotary_common_period R 1 omega Din bqry bkey X S q d (1, 0).
  by rewrite ord1 /angle /= w0 mul0r mulr0 addr0 cos0.
have [j|_ ->] // := @rotary_common_period R 1 omega Din bqry bkey X S q d (0, 1).
by rewrite ord1 /angle /= w0 mul0r mulr0 addr0 cos0.
Qed.

Section Axial.
Variables (R : realType) (m1 m2 : nat) (theta : 'I_m1 -> R) (phi : 'I_m2 -> R).

(** The axial encoding whose first [m1] pairs turn with the row and whose others turn with the
    column. *)
Definition rows_columns (j : 'I_(m1 + m2)) : R * R :=
  match split j with inl i => (theta i, 0) | inr i => (0, phi i) end.

Lemma rows_columns_l i : rows_columns (lshift m2 i) = (theta i, 0).
Proof. by rewrite /rows_columns (unsplitK (inl i)). Qed.

Lemma rows_columns_r i : rows_columns (rshift m1 i) = (0, phi i).
Proof. by rewrite /rows_columns (unsplitK (inr i)). Qed.

Lemma axial_rows_columns : axial rows_columns.
Proof. by apply/forallP => j; rewrite /rows_columns; case: split => i /=; rewrite eqxx ?orbT. Qed.

(** ** The scores with an axial encoding

    With the frequencies [theta] of the rows and [phi] of the columns the score from [q] to [k = q +
    delta] is [alpha] times the sum of [a_i cos(theta_i (delta_1 - Delta_1))] over the pairs of the
    rows, and of [a_j cos(phi_j (delta_2 - Delta_2))] over those of the columns. *)
Theorem rotary_axial Din a alpha Delta (X : image R Din) q k : (forall j, 0 <= a j) ->
  let delta := k - q in
  head_scores rows_columns a alpha Delta X q k =
  alpha * (\sum_i a (lshift m2 i) * cos (theta i * (delta.1 - Delta.1)%:~R)
         + \sum_i a (rshift m1 i) * cos (phi i * (delta.2 - Delta.2)%:~R)).
Proof.
move=> a0 delta; rewrite rotary_head // big_split_ord /=; congr (_ * (_ + _)).
  by apply: eq_bigr => i _; rewrite rows_columns_l /angle /= mul0r addr0.
by apply: eq_bigr => i _; rewrite rows_columns_r /angle /= mul0r add0r.
Qed.

(** ** What an axial encoding separates

    An axial encoding separates the shifts of an [H x Wd] image if and only if the frequencies of
    the rows have no common period below [H], and those of the columns none below [Wd]. *)
Theorem axial_separates H Wd : (0 < H)%N -> (0 < Wd)%N ->
  separates rows_columns H Wd <->
  (forall z : int, z != 0 -> `|z| < H%:Z -> ~ forall i, cos (theta i * z%:~R) = 1) /\
  (forall z : int, z != 0 -> `|z| < Wd%:Z -> ~ forall i, cos (phi i * z%:~R) = 1).
Proof.
move=> H0 W0; split=> [sep|[rows columns] [u1 u2] u0 u1H u2W period].
  split=> z z0 zn period; [apply: (sep (z, 0)) | apply: (sep (0, z))] => //.
  - by apply: contra z0 => /eqP[->].
  - move=> j; rewrite /rows_columns; case: split => i; rewrite /angle /= ?mul0r ?mulr0 ?addr0 //.
    by rewrite cos0.
  - move=> j; rewrite /rows_columns; case: split => i; rewrite /angle /= ?mul0r ?mulr0 ?add0r //.
    by rewrite cos0.
have [u10|u10] := eqVneq u1 0.
  apply: (columns u2) => // [|i]; first by apply: contra u0 => /eqP->; rewrite u10.
  by have := period (rshift m1 i); rewrite rows_columns_r /angle /= mul0r add0r.
apply: (rows u1) => // i.
by have := period (lshift m2 i); rewrite rows_columns_l /angle /= mul0r addr0.
Qed.

(** ** One slow frequency per axis is enough

    One row frequency between 0 and [2 pi / (H - 1)] and one column frequency between 0 and [2 pi /
    (Wd - 1)] (any positive one for [H = 1] or [Wd = 1]) separate all shifts, whatever the others
    are. *)
Theorem slow_frequencies_separate H Wd i j :
  0 < theta i -> theta i * H.-1%:R < pi *+ 2 -> 0 < phi j -> phi j * Wd.-1%:R < pi *+ 2 ->
  separates rows_columns H Wd.
Proof.
move=> ti ti2 pj pj2 u u0 u1 u2.
have slow (t : R) (z : int) m : 0 < t -> t * m.-1%:R < pi *+ 2 -> `|z| < m%:Z -> z != 0 ->
    cos (t * z%:~R) <> 1.
  move=> t0 tm; rewrite -abszE ltz_nat -absz_gt0 => zm z0 cos1.
  have : cos (t * `|z|%N%:R) < 1.
    apply: cos_lt1; rewrite mulr_gt0 ?ltr0n //=; apply: le_lt_trans tm.
    by rewrite ler_wpmul2l ?(ltW t0) // ler_nat; case: m zm.
  have -> : t * `|z|%N%:R = `|t * z%:~R| by rewrite normrM gtr0_norm // natr_absz intr_norm.
  by rewrite cos_norm cos1 ltxx.
have W0 : (0 < Wd)%N by case: Wd u2 {pj2} => //; rewrite ltNge normr_ge0.
have H0 : (0 < H)%N by case: H u1 {ti2} => //; rewrite ltNge normr_ge0.
have [_ sep] := axial_separates H0 W0; apply: sep => //.
by split=> z z0 zm all1; [apply: (slow _ _ _ ti ti2 zm z0) | apply: (slow _ _ _ pj pj2 zm z0)].
Qed.
End Axial.

(** ** The frequency 1 on images of every size

    Suppose that pi is irrational, which the library does not prove.  An axial encoding with the
    single frequency 1 on each axis, in heads of dimension 4, separates the shifts of images of
    every size. *)
Theorem one_frequency_per_axis (R : realType) :
  (forall p k : nat, (0 < k)%N -> k%:R * pi <> p%:R :> R) ->
  forall H Wd, separates (rows_columns (fun _ : 'I_1 => 1 : R) (fun _ : 'I_1 => 1 : R)) H Wd.
Proof.
move=> irrational H Wd u u0 u1 u2.
have aperiodic (z : int) : z != 0 -> cos (1 * z%:~R : R) <> 1.
  move=> z0; rewrite mul1r -cos_norm -intr_norm -abszE => /cos_eq1[|k]; first exact: ler0n.
  rewrite -mulrnA -mulr_natl => zE; case: k zE => [|k] zE.
    by move/eqP: zE; rewrite mul0r pnatr_eq0 absz_eq0 (negPf z0).
  by apply: (irrational `|z|%N (2 * k.+1)%N) => //; rewrite -zE.
have W0 : (0 < Wd)%N by case: Wd u2 => //; rewrite ltNge normr_ge0.
have H0 : (0 < H)%N by case: H u1 => //; rewrite ltNge normr_ge0.
have [_ sep] := axial_separates (fun _ : 'I_1 => 1 : R) (fun _ : 'I_1 => 1 : R) H0 W0.
by apply: sep => //; split=> z z0 _ /(_ 0); apply: aperiodic.
Qed.
